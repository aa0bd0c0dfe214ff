"""Chakra execution traces as a source: one file per rank, written by presim or other tools.

A host node is host time; a device node is work on its stream with the recorded duration. Dependencies between streams
become events; dependencies on the host follow its order. Nodes may be listed in any order: they are processed by their
dependencies, lowest number first.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from presim.errors import InputError
from presim.hardware import Cluster, choose_cluster
from presim.sources.chakra_files import RankFile, read_rank
from presim.sources.chakra_rank import EVERYONE, TraceOfRank
from presim.sources.source import SourceRequest
from presim.system.files import FormatError, convert, decode_json, read_bytes
from presim.system.files.field_bounds import Count
from presim.trace import spans
from presim.trace.job import Job
from presim.trace.schema import Group


@dataclasses.dataclass(frozen=True)
class Chakra:
    """Reads execution traces."""

    paths: Sequence[Path]
    request: SourceRequest
    name: str = "chakra"

    def job(self) -> Job:
        """All ranks of the files.

        Raises:
            InputError: a file cannot be used, or files do not belong together.
        """
        ranks: dict[int, RankFile] = {}
        for path in self.paths:
            rank_trace = read_rank(path)
            if rank_trace.rank in ranks:
                raise InputError(
                    f"{ranks[rank_trace.rank].path} and {path} are both of rank {rank_trace.rank}; "
                    "give only one of them"
                )
            ranks[rank_trace.rank] = rank_trace
        first = ranks[min(ranks)]
        world_size = first.attributes.get("world_size", max(ranks) + 1)
        side_file = _side_file(first.path)
        stands_for = {rank: represented for rank, represented in _represented_ranks(side_file).items() if rank in ranks}
        absent = sorted(
            set(range(world_size)) - set(ranks) - {rank for represented in stands_for.values() for rank in represented}
        )
        if absent and self.request.missing == "refuse":
            raise InputError(
                f"{len(absent)} of {world_size} ranks have no trace (first: rank {absent[0]}): give their files "
                "too, or use --missing same if they behave like the given ones"
            )
        cluster = _recorded_on(first, world_size, self.request)
        groups = _groups(side_file, world_size)
        traces = tuple(TraceOfRank(rank_trace, cluster, groups).trace() for _, rank_trace in sorted(ranks.items()))
        notes = (
            f"Imported from {len(traces)} Chakra execution traces: durations are those in the files.",
            "Execution traces contain no allocations: memory is not predicted.",
        )
        return Job(traces, stands_for, notes=notes)


def open_chakra(paths: Sequence[Path], request: SourceRequest) -> Chakra | None:
    """Open files that end in ``.et``, or folders of them."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.et")) if path.is_dir() else [path]
    return Chakra(tuple(files), request) if files and all(file.suffix == ".et" for file in files) else None


def _represented_ranks(side_file: dict[str, Any]) -> dict[int, list[int]]:
    """By captured rank: the ranks that it represents."""
    try:
        texts = convert(side_file.get("stands_for", {}), dict[Count, str])
    except FormatError as error:
        raise InputError(
            f"stands_for beside the execution traces is no table of ranks ({error}); write the traces again"
        ) from error
    return {rank: spans.from_text(text) for rank, text in texts.items() if text}


def _side_file(path: Path) -> dict[str, Any]:
    """Content of ``NAME.groups.json`` next to ``NAME.R.et``; empty if missing."""
    file = path.with_name(re.sub(r"\.?\d+\.et$", "", path.name) + ".groups.json")
    if not file.is_file():
        return {}
    try:
        content = decode_json(read_bytes(file, "write the execution traces again"))
    except FormatError as error:
        raise InputError(f"{file} cannot be read ({error}); write the execution traces again") from error
    return content if isinstance(content, dict) else {}


def _groups(side_file: dict[str, Any], world_size: int) -> dict[str, Group]:
    """Process groups by ``pg_name``, and one of all ranks for collectives that name none of them."""
    try:
        listed = convert(side_file.get("groups", {}), dict[str, list[Count]])
        names = convert(side_file.get("names", {}), dict[str, str])
    except FormatError as error:
        raise InputError(
            f"the groups beside the execution traces are no table of ranks ({error}); write the traces again"
        ) from error
    groups = {
        pg_name: Group(names.get(pg_name, pg_name), tuple(ranks), len(ranks))
        for pg_name, ranks in sorted(listed.items())
    }
    for group in groups.values():
        if group.ranks and max(group.ranks) >= world_size:
            raise InputError(
                f"group {group.name!r} has rank {max(group.ranks)}, but there are {world_size} ranks; write the "
                "execution traces again"
            )
    return {**groups, EVERYONE: Group("", tuple(range(world_size)), world_size)}


def _recorded_on(first: RankFile, world_size: int, request: SourceRequest) -> Cluster:
    attributes = first.attributes
    gpu = request.gpu or attributes.get("gpu")
    if gpu is None and request.cluster is None:
        raise InputError(f"{first.path} does not name the GPU it was recorded on; give it with --gpu")
    sized = request.nodes or request.gpus_per_node
    return choose_cluster(
        gpu=gpu, node=request.node or attributes.get("node"), fabric=request.fabric or attributes.get("fabric"),
        nodes=request.nodes,
        gpus_per_node=request.gpus_per_node or (None if sized else attributes.get("gpus_per_node")),
        world_size=world_size, cluster=request.cluster,
    )  # fmt: skip
