"""Changes the number of stages of a captured pipeline.

Stages between the first and the last do the same work. They differ in how many forward passes they run ahead, and in
the ranks they exchange messages with. So four captured stages say what a longer pipeline does: each added one is the
second, with more passes ahead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.allocator_pools import pools_of
from presim.composition.replan.copied_calls import CopiedCalls
from presim.composition.replan.cycles import content_numbers, program_calls
from presim.composition.replan.insertion import check_memory
from presim.composition.replan.layer_names import layer_list, names_of
from presim.composition.replan.object_names import definitions
from presim.composition.replan.pass_layout import PassLayout
from presim.composition.replan.pass_order import PassOrder
from presim.composition.replan.passes import StepPasses, find_passes
from presim.composition.replan.replayed_memory import with_replayed_memory
from presim.composition.replan.stage_differences import check_equal
from presim.composition.replan.stage_ranks import StageMove, represented_ranks, stage_ranks
from presim.errors import InputError
from presim.trace.schema import Manifest, Trace

Ints = NDArray[np.int64]
_CYCLES = 2  # micro-batches for each stage, after which the schedule has repeated
_FEWEST = 4  # stages: the second and the third show what one more pass ahead does


def with_stages(
    traces: Sequence[Trace], stages: int, stands_for: Mapping[int, Sequence[int]], micro_batches: int | None = None
) -> tuple[list[Trace], dict[int, list[int]], list[str]]:
    """The traces of a job with more pipeline stages, the ranks that each represents, and sentences for the reader.

    Stages keep their layers, so the model and the world grow with their number. Steps have two micro-batches more for
    each added stage, as the schedule needs to repeat, or ``micro_batches`` if these are fewer. ``stands_for``: the
    ranks that the captured ones represent.

    Raises:
        InputError: the job has no pipeline of at least four stages under 1F1B, its second stage with fewer passes
            ahead is not its third one, or a group reaches over stages in a way that shows no law.
    """
    traces = sorted(traces, key=lambda trace: trace.manifest.rank)
    ranks = stage_ranks(traces)
    if ranks.stages < _FEWEST:
        raise InputError(
            f"the job was captured with {ranks.stages} pipeline stages, and the first, the last and two between them "
            f"have to be seen; capture it with at least {_FEWEST}"
        )
    if stages < ranks.stages:
        raise InputError(
            f"the job was captured with {ranks.stages} pipeline stages and cannot be cut to {stages}; choose at least "
            f"{ranks.stages}"
        )
    if stages == ranks.stages:
        return list(traces), {rank: list(represented) for rank, represented in stands_for.items()}, []
    added = stages - ranks.stages
    check_memory(traces, (stages / ranks.stages) ** 2)
    _check_second_stage(traces, ranks.stages)
    sources = [0, *[1] * added, *range(1, ranks.stages)]
    moves = [StageMove(ranks, source, stages, stage) for stage, source in enumerate(sources)]
    captured = [_Stage.of(trace) for trace in traces]
    further = _further_micro_batches(captured, stages, added, micro_batches)
    planned = [move.moved(captured[move.stage].with_passes(_leading(move), further)) for move in moves]
    represented = represented_ranks(ranks, moves, stands_for, [traces[source].manifest.rank for source in sources])
    sentence = (
        f"Extended from {ranks.stages} to {stages} pipeline stages with the layers of those captured: stages between "
        "the first and the last are the second one with more forward passes ahead. The second captured stage with one "
        "pass less equals the third."
    )
    return planned, represented, [sentence]


def _further_micro_batches(captured: Sequence[_Stage], stages: int, added: int, micro_batches: int | None) -> int:
    """Micro-batches to add to those of the last captured step."""
    num_captured = captured[0].steps[-1].order.micro_batches
    further = _CYCLES * added if micro_batches is None else min(micro_batches - num_captured, _CYCLES * added)
    if num_captured + further < stages:
        raise InputError(
            f"{stages} stages under 1F1B take at least as many micro-batches, and the step would have "
            f"{num_captured + further}; choose more with --micro-batches"
        )
    return further


def _leading(move: StageMove) -> int:
    """Forward passes before the first backward pass, added to those of the captured stage."""
    return (move.new_stages - move.new_stage) - (move.ranks.stages - move.stage)


def _check_second_stage(traces: Sequence[Trace], stages: int) -> None:
    """Check that the second stage with one forward pass less ahead is the third one."""
    move = StageMove(stage_ranks(traces), 1, stages, 2)
    check_equal(move.moved(_Stage.of(traces[1]).with_passes(-1, 0)), traces[2])


@dataclasses.dataclass(frozen=True, eq=False)
class _Stage:
    """A captured stage, its calls, and where its passes are."""

    trace: Trace
    defined_at: Ints
    entries: Ints
    steps: list[StepPasses]

    @staticmethod
    def of(trace: Trace) -> _Stage:
        defined_at = definitions(trace)
        entries = program_calls(trace, defined_at)
        return _Stage(trace, defined_at, entries, find_passes(trace, entries))

    def with_passes(self, leading: int, micro_batches: int) -> Trace:
        """The trace with so many forward passes more before the first backward pass, and micro-batches more."""
        trace = self.trace
        orders = [
            PassOrder(step.order.leading + leading, step.order.micro_batches + micro_batches) for step in self.steps
        ]
        layout = PassLayout(content_numbers(trace, self.entries), self.steps, orders)
        copied = CopiedCalls(trace, self.entries, self.defined_at, layout)
        extended, positions = copied.trace_with(trace.columns["value"].astype(np.int64))
        path, _ = layer_list(trace)
        pools = pools_of(trace, names_of(trace.scopes, path), names_of(trace.operators, path))[copied.entries]
        replayed, later_positions = with_replayed_memory(extended, pools)
        return dataclasses.replace(replayed, manifest=self._manifest(later_positions[positions], orders))

    def _manifest(self, positions: Ints, orders: Sequence[PassOrder]) -> Manifest:
        """The manifest of the new trace. What PyTorch itself counted of its memory holds no longer."""
        manifest, facts = self.trace.manifest, self.trace.manifest.step
        ratios = [order.micro_batches / step.order.micro_batches for order, step in zip(orders, self.steps)]
        phases, begin = [], 0
        for phase in facts.phases:
            end, length = int(positions[phase.end]), max(phase.end - begin, 1)
            runs = phase.runs
            if phase.kind == "loop" and runs > 1:
                runs = max(round(runs * (end - int(positions[begin])) / length), 1)
            phases.append(msgspec.structs.replace(phase, end=end, runs=runs))
            begin = phase.end
        inputs = tuple(
            (round(tokens * ratio), round(samples * ratio)) for (tokens, samples), ratio in zip(facts.inputs, ratios)
        )
        step = msgspec.structs.replace(
            facts, begin=int(positions[facts.begin]), phases=tuple(phases), inputs=inputs if facts.inputs else ()
        )
        batch = {
            key: round(number * ratios[-1]) if key in ("tokens", "samples") else number
            for key, number in manifest.batch.items()
        }
        measured = manifest.measured and msgspec.structs.replace(manifest.measured, step_ns=0)
        return msgspec.structs.replace(manifest, step=step, batch=batch, model={}, allocator={}, measured=measured)
