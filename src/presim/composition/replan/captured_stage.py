"""A captured stage of a pipeline, whose steps run other passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.allocator_pools import pools_of
from presim.composition.replan.copied_calls import CopiedCalls
from presim.composition.replan.cycles import content_numbers, program_calls
from presim.composition.replan.interleaved_order import InterleavedOrder
from presim.composition.replan.layer_names import layer_list, names_of
from presim.composition.replan.object_names import definitions
from presim.composition.replan.pass_layout import PassLayout
from presim.composition.replan.pass_order import PassOrder
from presim.composition.replan.passes import StepPasses, find_interleaved_passes, find_passes
from presim.composition.replan.replayed_memory import with_replayed_memory
from presim.trace.schema import Manifest, Trace

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class CapturedStage:
    """A captured stage, its calls, and where its passes are."""

    trace: Trace
    defined_at: Ints
    entries: Ints
    steps: list[StepPasses]

    @staticmethod
    def of(trace: Trace, interleaved: Sequence[InterleavedOrder] = ()) -> CapturedStage:
        """The stage with its passes; ``interleaved``: their order in each step, none for 1F1B.

        Raises:
            InputError: passes are in another order.
        """
        defined_at = definitions(trace)
        entries = program_calls(trace, defined_at)
        if not interleaved:
            return CapturedStage(trace, defined_at, entries, find_passes(trace, entries))
        return CapturedStage(trace, defined_at, entries, find_interleaved_passes(trace, entries, interleaved))

    def with_orders(self, orders: Sequence[PassOrder]) -> Trace:
        """The trace with passes in such an order in each step.

        Raises:
            InputError: the captured stage has no such passes, or what they refer to follows no law.
        """
        trace = self.trace
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
