"""Plug-ins: what installed packages register in presim's entry-point groups.

Groups: ``presim.estimators`` (operator prices), ``presim.collectives`` (prices of collectives), ``presim.cases``
(validation cases), ``presim.sources`` (readers of recorded runs), ``presim.analyses`` (figures of a simulated job),
``presim.schedules`` (passes of a pipeline's ranks).
Packages are looked up when a group is first used, and imported only then.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from presim.errors import InputError


def factories(group: str) -> dict[str, Any]:
    """The objects of a group by the names of their entry points, in the order of these names.

    Raises:
        InputError: one of them cannot be imported.
    """
    return dict(_load_all(group, tuple(sys.path)))


@functools.lru_cache(maxsize=32)
def _load_all(group: str, path: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """By ``path``, because a program may add folders to it."""
    from importlib import metadata

    object_by_name: dict[str, Any] = {}
    for point in sorted(metadata.entry_points(group=group), key=lambda point: point.name):
        try:
            object_by_name[point.name] = point.load()
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"the plug-in {point.name!r} ({point.value}) of {group} cannot be imported: {error}; "
                "install it again or uninstall it"
            ) from error
    return tuple(object_by_name.items())
