"""Make autotuners choose without measuring: the framework's first candidate that compiles.

Triton, inductor and flex attention compile a kernel in many variants, run each a hundred times and keep the fastest. On
the emulated device every variant takes no time, so the choice would be random in each run and the compilers would take
minutes. Prices do not depend on tile sizes, so any valid choice is fine. The first one is what inductor takes in its
deterministic mode (a library's kernel if there is one).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from presim.capture.script.after_import import when_imported


def install() -> None:
    """Patch every tuner once the script has imported it."""
    when_imported("torch._inductor.select_algorithm", _choose_templates)
    when_imported("torch._inductor.runtime.triton_heuristics", _choose_configurations)
    when_imported("triton.runtime.autotuner", _choose_triton_configurations)


def _choose_templates(module: Any) -> None:
    """Inductor's templates (products, convolutions, flex attention): only the chosen one is compiled."""
    cache = module.AlgorithmSelectorCache
    select = cache.__call__

    @functools.wraps(select)
    def select_first(self: Any, name: str, choices: list[Any], *args: Any, **kwargs: Any) -> Any:
        if len(choices) > 1:
            choices = [self.pick_deterministic_choice(choices)]
        return select(self, name, choices, *args, **kwargs)

    cache.__call__ = select_first


def _choose_configurations(module: Any) -> None:
    """Inductor's generated kernels, which were compiled together ahead of time."""
    tuner = module.CachingAutotuner
    tuner.bench = lambda self, launcher, *args, **kwargs: float(self.launchers.index(launcher))
    tuner.coordinate_descent_tuning = lambda self, launcher, *args, **kwargs: launcher


def _choose_triton_configurations(module: Any) -> None:
    """``@triton.autotune``: the first configuration whose kernel fits the emulated GPU's shared memory."""
    tuner = module.Autotuner
    bench = tuner._bench

    @functools.wraps(bench)
    def run_until_one_works(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        if getattr(self, "_presim_chose_for", None) is self.nargs:  # a new object at each call
            return [math.inf] * 3
        self._do_bench = _run_once
        times: list[float] = bench(self, *args, config=config, **meta)
        if times[0] < math.inf:
            self._presim_chose_for = self.nargs
        return times

    tuner._bench = run_until_one_works


def _run_once(kernel_call: Callable[[], None], quantiles: tuple[float, ...]) -> list[float]:
    kernel_call()
    return [1.0] * len(quantiles)
