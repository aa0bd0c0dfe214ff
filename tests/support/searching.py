"""What tests of the search share: figures that nobody simulated, and an evaluation without processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from presim.planner.trials.trial import Figures, Point
from presim.planner.trials.trial_messages import Reply

GIB = 1 << 30


def figures(step_time_s: float = 1.0, *, headroom_gib: float = 10.0, gpus: int = 8, **more: Any) -> Figures:
    """Figures of a plan that takes so long and leaves so much memory."""
    return Figures(
        **{
            "gpus": gpus,
            "step_time_s": step_time_s,
            "low_s": step_time_s * 0.95,
            "high_s": step_time_s * 1.05,
            "tokens_per_step": 1e6,
            "mfu": 0.4,
            "fits": headroom_gib >= 0,
            "memory_bytes": int((80 - headroom_gib) * GIB),
            "headroom_bytes": int(headroom_gib * GIB),
            "compute_s": step_time_s,
            "communication_s": 0.0,
            "exposed_communication_s": 0.0,
            "host_bound_s": 0.0,
            "idle_s": 0.0,
            **more,
        }
    )


class InProcess:
    """Stands for `presim.planner.trials.worker_pool.Workers`: answers with a function of the point, in any order."""

    def __init__(self, answer: Callable[[Point], Reply], *, backwards: bool = False) -> None:
        self._answer, self._backwards = answer, backwards
        self.asked: list[Point] = []

    def evaluate(self, points: Sequence[Point], ends: float | None = None) -> Iterator[tuple[int, Reply]]:
        """All replies."""
        places = range(len(points))
        for place in reversed(places) if self._backwards else places:
            self.asked.append(points[place])
            yield place, self._answer(points[place])
