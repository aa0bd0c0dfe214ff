"""Merges module paths that differ only in a layer's number."""

from __future__ import annotations

import functools
import re

from presim.result import OUTSIDE_MODULES

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


@functools.lru_cache(maxsize=65536)
def merge_numbers(path: str) -> str:
    """``model.layers.17.mlp`` to ``model.layers.*.mlp``; an empty path to `OUTSIDE_MODULES`.

    >>> merge_numbers("model.layers.17.mlp")
    'model.layers.*.mlp'
    """
    return _NUMBER.sub("*", path) if path else OUTSIDE_MODULES
