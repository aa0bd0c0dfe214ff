"""What the manifest of a trace says of its steps, after repetitions of a cycle were added to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.cycles import Cycle
from presim.trace.schema import Manifest, StepFacts, StepPhase

Ints = NDArray[np.int64]
_SCALED = ("tokens", "samples")  # keys of `Manifest.batch`


@dataclasses.dataclass(frozen=True)
class Extension:
    """Numbers of micro-batches before and after, and the cycle of each step that was extended."""

    num_captured: int
    micro_batches: int
    cycles: Mapping[int, tuple[Cycle, int]]  # by step: with the number of added repetitions

    @property
    def has_equal_micro_batches(self) -> bool:
        """Whether all micro-batches do the same work, so that they read the same number of samples."""
        return all(cycle.are_equal for cycle, _ in self.cycles.values())

    def scaled(self, number: int) -> int:
        """A number that grows with the micro-batches."""
        return number * self.micro_batches // self.num_captured


def extended_manifest(manifest: Manifest, extension: Extension, positions: Ints) -> Manifest:
    """The manifest of an extended trace; ``positions``: what each number of entries has become.

    What micro-batches of different sizes read is not known, and what PyTorch itself counted holds no longer.
    """
    facts = manifest.step
    step = msgspec.structs.replace(
        facts,
        inputs=_inputs(facts, extension),
        iterations=extension.micro_batches if facts.iterations == extension.num_captured > 1 else facts.iterations,
        begin=int(positions[facts.begin]),
        phases=_phases(facts.phases, extension, positions),
    )
    if extension.has_equal_micro_batches:
        batch = {key: extension.scaled(number) if key in _SCALED else number for key, number in manifest.batch.items()}
    else:
        batch = {key: number for key, number in manifest.batch.items() if key not in _SCALED}
    measured = manifest.measured and msgspec.structs.replace(manifest.measured, step_ns=0)
    return msgspec.structs.replace(manifest, step=step, batch=batch, allocator={}, measured=measured)


def _inputs(facts: StepFacts, extension: Extension) -> tuple[tuple[int, int], ...]:
    """Tokens and samples of each step."""
    if not extension.has_equal_micro_batches:
        return ()
    return tuple(
        (extension.scaled(tokens), extension.scaled(samples)) if step in extension.cycles else (tokens, samples)
        for step, (tokens, samples) in enumerate(facts.inputs)
    )


def _phases(phases: tuple[StepPhase, ...], extension: Extension, positions: Ints) -> tuple[StepPhase, ...]:
    """The phases at their new ends; loops whose iterations a cycle repeats run more often."""
    result = []
    begin = 0
    for phase in phases:
        cycle, added = extension.cycles.get(phase.step, (None, 0))
        runs = phase.runs
        if cycle and phase.kind == "loop" and begin < cycle.end <= phase.end:
            runs += added * _iterations(cycle, phase, begin)
        result.append(msgspec.structs.replace(phase, end=int(positions[phase.end]), runs=runs))
        begin = phase.end
    return tuple(result)


def _iterations(cycle: Cycle, loop: StepPhase, begin: int) -> int:
    """Iterations of a loop in one cycle: those of the repetitions that lie in it, which are equally long."""
    starts = cycle.calls[:, 0]
    length = (cycle.end - int(starts[-1])) if len(starts) < 2 else int(np.median(np.diff(starts)))
    return max(round(loop.runs * length / (loop.end - begin)), 1)
