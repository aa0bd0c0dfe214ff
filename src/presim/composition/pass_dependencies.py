"""Bare dependencies between passes of a pipeline: one begins after another has ended, without a tensor between them.

Between two ranks a dependency is a message of four bytes, as a control message between workers would be. Both sides
start it when the first pass has ended, so that messages of a pair of ranks are in the same order on both.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import TypeAlias

from presim.composition.pipeline_steps import AWAIT, SIGNAL, WEIGHT, PipelineStep, Signal

Pass: TypeAlias = tuple[str, int, int]  # kind, stage, micro-batch
Dependency: TypeAlias = tuple[Pass, Pass]  # the second begins after the first


def name_of(step: PipelineStep) -> Pass:
    """A step that is a pass, as dependencies name it."""
    return step.kind, step.stage, step.micro


class Dependencies:
    """Which passes have ended, and the signals that follow from that."""

    def __init__(self, dependencies: Sequence[Dependency], rank_of: Callable[[int], int]) -> None:
        self._rank_of = rank_of
        self._sources: dict[Pass, list[tuple[int, Pass]]] = collections.defaultdict(list)
        self._targets: dict[Pass, list[tuple[int, Pass]]] = collections.defaultdict(list)
        for number, (source, target) in enumerate(dependencies):
            self._sources[target].append((number, source))
            self._targets[source].append((number, target))
        self._ended: set[Pass] = set()

    def missing(self, step: PipelineStep) -> Pass | None:
        """A pass that has to end before this one begins; None if all have."""
        sources = (source for _, source in self._sources.get(name_of(step), ()))
        return next((source for source in sources if source not in self._ended), None)

    def waits(self, step: PipelineStep) -> list[PipelineStep]:
        """What the rank of a pass waits for before it."""
        rank = self._rank_of(step.stage)
        signals = [
            Signal(number, self._rank_of(source[1]), False) for number, source in self._sources.get(name_of(step), ())
        ]
        return [PipelineStep(AWAIT, step.stage, step.micro, signal=signal) for signal in signals if signal.peer != rank]

    def end(self, step: PipelineStep) -> list[tuple[int, PipelineStep]]:
        """Note that a pass has ended; returns the two sides of its signals, each with its rank."""
        self._ended.add(name_of(step))
        rank, sides = self._rank_of(step.stage), []
        for number, (_, stage, micro) in self._targets.get(name_of(step), ()):
            peer = self._rank_of(stage)
            if peer != rank:
                sides.append((rank, PipelineStep(SIGNAL, step.stage, step.micro, signal=Signal(number, peer, True))))
                sides.append((peer, PipelineStep(SIGNAL, stage, micro, signal=Signal(number, rank, False))))
        return sides


def is_ready(step: PipelineStep, has_input: bool, dependencies: Dependencies) -> bool:
    """Whether a pass can begin. ``has_input``: its activation or gradient has come."""
    return (step.kind == WEIGHT or has_input) and dependencies.missing(step) is None
