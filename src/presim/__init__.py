"""presim rehearses a GPU job before anyone pays for it. See `presim.simulate` and ``presim --help``."""

from __future__ import annotations

TYPE_CHECKING = False  # without typing, whose import takes 20 ms, in which Ctrl-C would print a traceback
if TYPE_CHECKING:
    from typing import Any

    from presim.cli.api import (
        ask,
        calibrate,
        compare,
        compose,
        deploy,
        explain,
        gate,
        import_profile,
        network,
        replan,
        rl,
        run,
        search,
        serve,
        simulate,
        training,
        validate,
    )
    from presim.evaluation.evaluator import Evaluator, evaluate
    from presim.result import Result
    from presim.trace.job import Job

__version__ = "0.1.0"
__all__ = [
    "Evaluator",
    "Job",
    "Result",
    "__version__",
    "ask",
    "calibrate",
    "compare",
    "compose",
    "deploy",
    "evaluate",
    "explain",
    "gate",
    "import_profile",
    "network",
    "replan",
    "rl",
    "run",
    "search",
    "serve",
    "simulate",
    "training",
    "validate",
]

# Loaded when first used: `presim --help` and `presim.__version__` need neither numpy nor msgspec.
_LAZY = dict.fromkeys(__all__, "presim.cli.api") | {
    "Evaluator": "presim.evaluation.evaluator",
    "Job": "presim.trace.job",
    "Result": "presim.result",
    "evaluate": "presim.evaluation.evaluator",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'presim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
