"""Changes the number of micro-batches of a captured job.

Pipeline schedules and gradient accumulation repeat a cycle of forward and backward passes. A capture of a few cycles
has everything that a step of more micro-batches does, so further ones are repetitions of the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.cycles import Cycle, NotPeriodicError, find_cycle, program_calls
from presim.composition.replan.insertion import Insertion, check_memory, insert
from presim.composition.replan.manifest_facts import Extension, extended_manifest
from presim.composition.replan.object_names import definitions
from presim.composition.replan.reserved_segments import missing_segments
from presim.composition.replan.unroll import Numbers, Unroller
from presim.errors import InputError
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class _Rank:
    """One rank with the cycle of each of its steps, or the reason why it has none."""

    trace: Trace
    defined_at: Ints
    cycles: dict[int, Cycle]  # by step
    unrollers: dict[int, Unroller]  # by step
    reasons: dict[int, str]  # by step

    @staticmethod
    def of(trace: Trace) -> _Rank:
        defined_at = definitions(trace)
        calls = program_calls(trace, defined_at)
        rank = _Rank(trace, defined_at, {}, {}, {})
        for number, step in enumerate(trace.steps()):
            try:
                rank.cycles[number] = find_cycle(trace, step, calls)
            except NotPeriodicError as error:
                rank.reasons[number] = str(error)
        return rank

    def prepare(self, step: int, reference: Cycle) -> None:
        """Make the step's cycle comparable with that of the rank that counts the fewest micro-batches."""
        cycle = self.cycles[step]
        try:
            chunks, remainder = divmod(cycle.step_micro_batches, reference.step_micro_batches)
            if chunks > 1 and not remainder:
                cycle = cycle.of_equal_chunks(chunks, reference.micro_batches)
            self.unrollers[step] = Unroller(self.trace, cycle, self.defined_at)
            self.cycles[step] = cycle
        except NotPeriodicError as error:
            del self.cycles[step]
            self.reasons[step] = str(error)

    @property
    def number(self) -> int:
        return self.trace.manifest.rank


def with_micro_batches(traces: Sequence[Trace], micro_batches: int) -> tuple[list[Trace], list[str]]:
    """The traces of a job with another number of micro-batches in each step, and sentences for the reader.

    First steps that do not repeat yet, because they set something up, stay as they were captured.

    Raises:
        InputError: steps do not repeat a cycle of micro-batches, or not with that number.
    """
    ranks, first_step, num_captured = _repeating_ranks(traces)
    if micro_batches == num_captured:
        return list(traces), []
    check_memory(traces, micro_batches / num_captured)
    extensions = [_extension(rank, first_step, num_captured, micro_batches) for rank in ranks]
    sentences = [
        f"Extended from {num_captured} to {micro_batches} micro-batches: the last captured cycle of the pipeline "
        "schedule or of gradient accumulation is repeated. Work outside of it, as for all batches or losses together, "
        "is as captured."
    ]
    if first_step:
        steps = "Step 0 does" if first_step == 1 else f"Steps 0 to {first_step - 1} do"
        sentences.append(f"{steps} not repeat a cycle of micro-batches and stayed as captured.")
    if not all(extension.has_equal_micro_batches for extension in extensions):
        sentences.append("Micro-batches of a step differ in size, so the extended step's samples are not known.")
    return [_extended(rank, extension) for rank, extension in zip(ranks, extensions)], sentences


def captured_micro_batches(traces: Sequence[Trace]) -> int:
    """The number of micro-batches in each step of a captured job.

    Raises:
        InputError: its steps repeat no cycle of micro-batches.
    """
    return _repeating_ranks(traces)[2]


def _repeating_ranks(traces: Sequence[Trace]) -> tuple[list[_Rank], int, int]:
    """The ranks with their cycles, the first step from which on all repeat, and the micro-batches of such steps."""
    ranks = [_Rank.of(trace) for trace in traces]
    for step in sorted({step for rank in ranks for step in rank.cycles}):
        repeating = [rank for rank in ranks if step in rank.cycles]
        reference = min((rank.cycles[step] for rank in repeating), key=lambda cycle: cycle.step_micro_batches)
        for rank in repeating:
            rank.prepare(step, reference)
    first_step = _first_like_the_last(ranks, _first_repeating_step(ranks))
    captured = {cycle.step_micro_batches for rank in ranks for step, cycle in rank.cycles.items() if step >= first_step}
    if len(captured) > 1:
        numbers = " and ".join(map(str, sorted(captured)))
        raise InputError(f"the steps of this job have {numbers} micro-batches; capture it with the same number in each")
    (num_captured,) = captured
    return ranks, first_step, num_captured


def _first_repeating_step(ranks: Sequence[_Rank]) -> int:
    """The first step from which on each rank repeats a cycle in each step."""
    num_steps = _steps(ranks)
    if not num_steps:
        raise InputError("this job has no steps, so nothing is known of micro-batches; capture a training script")
    rank_by_step = {step: rank for rank in ranks for step in rank.reasons}
    first_step = max(rank_by_step, default=-1) + 1
    if first_step >= num_steps:
        step = max(rank_by_step)
        rank = rank_by_step[step]
        raise InputError(
            f"step {step} of rank {rank.number} repeats no cycle of forward and backward passes: {rank.reasons[step]}; "
            "capture it with more micro-batches, twice as many as pipeline stages and at least six. Steps that run "
            "all forward passes first cannot be extended"
        )
    return first_step


def _first_like_the_last(ranks: Sequence[_Rank], first_step: int) -> int:
    """The first step from which on all have as many micro-batches as the last; earlier ones set something up.

    torchtitan runs each stage of a pipeline once more in the first step, for its shapes.
    """
    counts = [{rank.cycles[step].step_micro_batches for rank in ranks} for step in range(first_step, _steps(ranks))]
    differing = [step for step, numbers in enumerate(counts, first_step) if numbers != counts[-1]]
    return differing[-1] + 1 if differing else first_step


def _steps(ranks: Sequence[_Rank]) -> int:
    return min(len(rank.cycles) + len(rank.reasons) for rank in ranks)


def _extension(rank: _Rank, first_step: int, num_captured: int, micro_batches: int) -> Extension:
    """The steps to extend, and the number of cycles to add to each."""
    if micro_batches < num_captured:
        raise InputError(
            f"the job was captured with {num_captured} micro-batches and cannot be cut to {micro_batches}; choose at "
            f"least {num_captured}, or capture it with {micro_batches}"
        )
    cycles = {}
    for step in range(first_step, len(rank.cycles) + len(rank.reasons)):
        cycle = rank.cycles[step]
        added, remainder = divmod(micro_batches - num_captured, cycle.micro_batches)
        if remainder:
            raise InputError(
                f"rank {rank.number} was captured with {num_captured} micro-batches and repeats every "
                f"{cycle.micro_batches}, so there is no step with {micro_batches}; choose "
                f"{num_captured + added * cycle.micro_batches} or {num_captured + (added + 1) * cycle.micro_batches}"
            )
        cycles[step] = cycle, added
    return Extension(num_captured, micro_batches, cycles)


def _extended(rank: _Rank, extension: Extension) -> Trace:
    numbers = Numbers.unused_by(rank.trace)
    objects = rank.trace.columns["object"].astype(np.int64)
    insertions: list[Insertion] = []
    for step, (_, added) in extension.cycles.items():
        if added:
            added_entries, objects = rank.unrollers[step].unrolled(objects, added, numbers)
            insertions += added_entries
    extended, positions = insert(rank.trace, insertions, objects)
    extended = _with_freed_bytes(extended)
    segments = missing_segments(extended, numbers.address)
    extended, later_positions = insert(extended, segments, extended.columns["object"].astype(np.int64))
    manifest = extended_manifest(rank.trace.manifest, extension, later_positions[positions])
    return dataclasses.replace(extended, manifest=manifest)


def _with_freed_bytes(trace: Trace) -> Trace:
    """The trace with frees of the sizes of their blocks: repetitions' blocks of one call may have some bytes more."""
    defined_at = definitions(trace)
    frees = np.flatnonzero(trace.mask(Kind.FREE) & (defined_at >= 0))
    values = trace.columns["value"].copy()
    values[frees] = values[defined_at[frees]]
    return dataclasses.replace(trace, columns={**trace.columns, "value": values})
