"""GPUs that several processes of a node used, from the notes of the emulated device (shim/core/shared_devices.h)."""

from __future__ import annotations

from collections.abc import Sequence

from presim.capture.reading.log import parse
from presim.trace.schema import GpuUse
from presim.units import gib


def gpu_uses(notes: Sequence[str], rank: int, gpus_per_node: int) -> tuple[GpuUse, ...]:
    """The GPUs that a process used, its own first; none if it used one GPU alone."""
    facts = [parse(note) for note in notes if note.startswith("gpu ")]
    uses = [GpuUse(*map(fact.number, ("index", "own", "all", "processes"))) for fact in facts]
    if len(uses) < 2 and all(use.processes < 2 for use in uses):
        return ()
    return tuple(sorted(uses, key=lambda use: use.gpu != rank % gpus_per_node))


def sharing_notes(uses: Sequence[GpuUse], rank: int) -> list[str]:
    """A sentence for each GPU that several processes used."""
    return [
        f"GPU {use.gpu} of the node is used by {use.processes} processes, with a CUDA context each. Together they held "
        f"up to {gib(use.all_bytes)} there, rank {rank} {gib(use.own_bytes)} of it."
        for use in uses
        if use.processes > 1
    ]


def absent_neighbours_note(uses: Sequence[GpuUse], rank: int, absent: Sequence[int], capacity_bytes: int) -> list[str]:
    """A sentence on memory of other GPUs of the node that ranks which did not run may hold, too.

    ``absent``: the ranks of the node that did not run.
    """
    if not absent:
        return []
    ranks = f"rank {absent[0]}" if len(absent) == 1 else f"ranks {absent[0]} to {absent[-1]}"
    return [
        f"Rank {rank} holds {gib(use.own_bytes)} on GPU {use.gpu}, which is another rank's. Of its node, {ranks} did "
        f"not run: if each holds as much there, this GPU needs {gib(use.all_bytes + len(absent) * use.own_bytes)} of "
        f"{gib(capacity_bytes)}. --ranks names ranks that run together."
        for use in uses[1:]
    ]
