"""Changes the number of micro-batches of a captured job.

Pipeline schedules and gradient accumulation repeat a cycle of forward and backward passes. A capture of a few cycles
has everything that a step of more micro-batches does, so further ones are repetitions of the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.replan.cycles import Cycle, find_cycle
from presim.replan.insertion import insert
from presim.replan.object_names import definitions
from presim.replan.unroll import NotPeriodicError, Numbers, Unroller
from presim.trace.schema import Manifest, StepFacts, Trace

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class _Rank:
    """One rank with the cycle of each of its steps, where there is one."""

    trace: Trace
    defined_at: Ints
    cycles: list[Cycle | None]

    @staticmethod
    def of(trace: Trace) -> _Rank:
        defined_at = definitions(trace)
        return _Rank(trace, defined_at, [find_cycle(trace, step, defined_at) for step in trace.steps()])

    @property
    def number(self) -> int:
        return self.trace.manifest.rank


def with_micro_batches(traces: Sequence[Trace], micro_batches: int) -> tuple[list[Trace], str]:
    """The traces of a job with another number of micro-batches in each step, and a sentence for the reader.

    First steps that do not repeat yet, because they set something up, stay as they were captured.

    Raises:
        InputError: steps do not repeat a cycle of micro-batches, or not with that number.
    """
    ranks = [_Rank.of(trace) for trace in traces]
    first_step = _first_repeating_step(ranks)
    captured = {cycle.step_micro_batches for rank in ranks for cycle in rank.cycles[first_step:] if cycle}
    if len(captured) > 1:
        numbers = " and ".join(map(str, sorted(captured)))
        raise InputError(f"the steps of this job have {numbers} micro-batches; capture it with the same number in each")
    (num_captured,) = captured
    extended = [_extended(rank, first_step, num_captured, micro_batches) for rank in ranks]
    sentence = (
        f"Captured with {num_captured} micro-batches and extended to {micro_batches}: the last cycle of the pipeline "
        "schedule or of gradient accumulation is repeated."
    )
    return extended, sentence


def _first_repeating_step(ranks: Sequence[_Rank]) -> int:
    """The first step from which on each rank repeats a cycle in each step."""
    num_steps = min(len(rank.cycles) for rank in ranks)
    if not num_steps:
        raise InputError("this job has no steps, so nothing is known of micro-batches; capture a training script")
    rank_by_step = {step: rank.number for rank in ranks for step, cycle in enumerate(rank.cycles) if cycle is None}
    first_step = max(rank_by_step, default=-1) + 1
    if first_step >= num_steps:
        step = max(rank_by_step)
        raise InputError(
            f"step {step} of rank {rank_by_step[step]} repeats no forward and backward pass; capture it with more "
            "micro-batches, twice as many as pipeline stages and at least four. Steps that run all forward passes "
            "first cannot be extended"
        )
    return first_step


def _extended(rank: _Rank, first_step: int, num_captured: int, micro_batches: int) -> Trace:
    numbers = Numbers.unused_by(rank.trace)
    objects = rank.trace.columns["object"].astype(np.int64)
    insertions = []
    for step, cycle in enumerate(rank.cycles):
        if step < first_step or cycle is None:
            continue
        added = _added_cycles(rank.number, cycle, num_captured, micro_batches)
        if not added:
            continue
        try:
            unroller = Unroller(rank.trace, cycle, rank.defined_at, added, numbers)
        except NotPeriodicError as error:
            raise InputError(
                f"the micro-batches of step {step} of rank {rank.number} do not repeat: {error}; capture it with more "
                "micro-batches"
            ) from error
        insertions += unroller.insertions()
        objects = unroller.renamed(objects)
    extended, positions = insert(rank.trace, insertions, objects)
    manifest = _scaled(rank.trace.manifest, micro_batches, num_captured, positions)
    return dataclasses.replace(extended, manifest=manifest)


def _added_cycles(rank: int, cycle: Cycle, num_captured: int, micro_batches: int) -> int:
    if micro_batches < num_captured:
        raise InputError(
            f"the job was captured with {num_captured} micro-batches and cannot be cut to {micro_batches}; choose at "
            f"least {num_captured}, or capture it with {micro_batches}"
        )
    added, remainder = divmod(micro_batches - num_captured, cycle.micro_batches)
    if remainder:
        raise InputError(
            f"rank {rank} was captured with {num_captured} micro-batches and repeats every {cycle.micro_batches}, so "
            f"there is no step with {micro_batches}; choose {num_captured + added * cycle.micro_batches} or "
            f"{num_captured + (added + 1) * cycle.micro_batches}"
        )
    return added


def _scaled(manifest: Manifest, micro_batches: int, num_captured: int, positions: Ints) -> Manifest:
    """The manifest of a trace with more micro-batches; ``positions``: what each number of entries has become."""

    def scaled(number: int) -> int:
        return number * micro_batches // num_captured

    facts: StepFacts = manifest.step
    phases = tuple(
        msgspec.structs.replace(
            phase,
            end=int(positions[phase.end]),
            runs=micro_batches if phase.runs == num_captured and phase.kind == "loop" else phase.runs,
        )
        for phase in facts.phases
    )
    step = msgspec.structs.replace(
        facts,
        inputs=tuple((scaled(tokens), scaled(samples)) for tokens, samples in facts.inputs),
        begin=int(positions[facts.begin]),
        phases=phases,
    )
    return msgspec.structs.replace(
        manifest, step=step, batch={name: scaled(number) for name, number in manifest.batch.items()}
    )
