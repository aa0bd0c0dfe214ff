"""Autotuners choose the first candidate that works and do not run the others."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

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


class CompiledAhead:
    """Like inductor's: compiles all of its configurations, and raises if none of them works."""

    def __init__(self, *configs: str) -> None:
        self.configs: list[str] | None = list(configs)
        self.compile_results: list[str] = []
        self.launchers: list[str] = []
        self.compiled: list[str] = []

    def precompile(self, warm_cache_only: bool = False) -> None:
        if not self.compile_results:
            self.compiled += self.configs or ()
            self.compile_results, self.configs = list(self.configs or ()), None
        self.launchers = [result for result in self.compile_results if result != "too large"]
        if not self.launchers:
            raise RuntimeError("No valid triton configs")
        self._dynamic_scale_rblock()

    def _dynamic_scale_rblock(self) -> None:
        self.compiled.append("half the block")


def _ahead() -> type[CompiledAhead]:
    patched = type("Patched", (CompiledAhead,), {})
    autotuning._choose_configurations(SimpleNamespace(CachingAutotuner=patched))
    return patched


def test_inductor_compiles_one_configuration() -> None:
    """The first that fits; later calls compile nothing."""
    tuner = _ahead()("too large", "first", "second")
    tuner.precompile()
    assert (tuner.compiled, tuner.launchers) == (["too large", "first"], ["first"])
    tuner.precompile()
    assert tuner.compiled == ["too large", "first"]


def test_inductor_s_own_error_is_raised_if_none_fits() -> None:
    """The last configuration raises as inductor does."""
    tuner = _ahead()("too large", "too large")
    with pytest.raises(RuntimeError, match=r"^No valid triton configs$"):
        tuner.precompile()
