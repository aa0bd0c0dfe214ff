"""presim rehearses a GPU job before anyone pays for it. See `presim.simulate` and ``presim --help``."""

from __future__ import annotations

TYPE_CHECKING = False  # without typing, whose import takes 20 ms, in which Ctrl-C would print a traceback
if TYPE_CHECKING:
    from typing import Any

    from presim.api import compare, replan, rl, run, search, simulate
    from presim.job import Evaluator, Job, evaluate
    from presim.result import Result

__version__ = "0.1.0"
__all__ = ["Evaluator", "Job", "Result", "__version__", "compare", "evaluate"]
__all__ += ["replan", "rl", "run", "search", "simulate"]

# Loaded when first used: `presim --help` and `presim.__version__` need neither numpy nor msgspec.
_LAZY = {"compare": "presim.api", "run": "presim.api", "search": "presim.api", "simulate": "presim.api"}
_LAZY |= {"replan": "presim.api", "rl": "presim.api"}
_LAZY |= {"Evaluator": "presim.job", "Job": "presim.job", "evaluate": "presim.job"}
_LAZY["Result"] = "presim.result"


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'presim' has no attribute {name!r}")
