"""Search over training plans or over the arguments of a command.

`presim.search(…)` is a function as well: the module is callable, because a package and a verb share the name.
"""

from __future__ import annotations

import sys
import types
from typing import Any


class _Verb(types.ModuleType):
    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The function `presim.api.search`."""
        from presim.api import search

        return search(*args, **keywords)


sys.modules[__name__].__class__ = _Verb
