"""Autotuners choose the first candidate that works and do not run the others."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from presim.capture.adapters import autotuning


class Selector:
    """Like inductor's: compiles the given choices, and has a deterministic one."""

    def pick_deterministic_choice(self, choices: list[str]) -> str:
        return next((choice for choice in choices if choice == "library"), choices[0])

    def __call__(self, name: str, choices: list[str], *rest: Any) -> list[str]:
        return choices


class Tuner:
    """Like Triton's: runs a configuration; `nargs` is a new object at each call."""

    def __init__(self) -> None:
        self.nargs: dict[str, int] = {}
        self.ran: list[str] = []

    def _bench(self, *args: Any, config: str, **meta: Any) -> list[float]:
        if config == "too large":
            return [math.inf] * 3
        return self._do_bench(lambda: self.ran.append(config), (0.5, 0.2, 0.8))  # type: ignore[attr-defined,no-any-return]


def test_only_inductor_s_deterministic_template_is_compiled() -> None:
    autotuning._choose_templates(SimpleNamespace(AlgorithmSelectorCache=Selector))
    assert Selector()("mm", ["one", "library", "two"]) == ["library"]
    assert Selector()("flex", ["one", "two"]) == ["one"]


def test_triton_runs_only_the_first_configuration_that_fits() -> None:
    autotuning._choose_triton_configurations(SimpleNamespace(Autotuner=Tuner))
    tuner = Tuner()
    times = {config: tuner._bench(config=config) for config in ("too large", "first", "second")}
    assert min(times, key=lambda config: times[config]) == "first"
    assert tuner.ran == ["first"]
    tuner.nargs = {}
    tuner._bench(config="second")
    assert tuner.ran == ["first", "second"]
