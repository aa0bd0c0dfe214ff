"""Where a pipeline schedule of one's own is from: a file, a function, or an installed package.

A function gets the numbers of ranks, stages and micro-batches, and returns the rows of `own_schedule`. Packages
register functions by name in the group ``presim.schedules``.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from presim.composition.plan import Plan
from presim.errors import InputError
from presim.system.files import read_text
from presim.system.plugins import factories

GROUP = "presim.schedules"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def read_passes(source: str) -> tuple[str, ...]:
    """The rows of a schedule file; for a function or a registered name, one row that names it.

    Raises:
        InputError: the file cannot be read, or has no passes.
    """
    if not Path(source).exists() and (_FUNCTION.fullmatch(source) or source in factories(GROUP)):
        return (source,)
    lines = [line.strip() for line in read_text(Path(source), "name a file with a schedule").splitlines()]
    rows = tuple(line for line in lines if line and not line.startswith("#"))
    if not rows:
        raise InputError(f"{source} has no passes; give a row such as 0F0,0F1,0B0,0B1 for each rank")
    return rows


def with_passes(plan: Plan, world_size: int) -> Plan:
    """The plan with the rows that its function makes; unchanged if it has rows, or no schedule of its own.

    Raises:
        InputError: the function cannot be loaded, raises, or returns no rows.
    """
    name = plan.rank_passes[0] if len(plan.rank_passes) == 1 else ""
    if not (_FUNCTION.fullmatch(name) or name in (factories(GROUP) if name.isidentifier() else ())):
        return plan
    function = _loaded(name)
    arguments = (plan.pipeline, plan.pipeline * plan.virtual, plan.micro_batches(world_size))
    try:
        rows = tuple(function(*arguments))
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the schedule {name} raised {type(error).__name__} for {arguments[0]} ranks, {arguments[1]} stages and "
            f"{arguments[2]} micro-batches: {error}; correct it"
        ) from error
    if not rows or not all(isinstance(row, str) for row in rows):
        raise InputError(f"the schedule {name} returned no rows of passes such as '0F0,0F1,0B0,0B1'; correct it")
    return msgspec.structs.replace(plan, rank_passes=rows)


def _loaded(name: str) -> Any:
    if ":" not in name:
        return factories(GROUP)[name]
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"the schedule {name} cannot be loaded: {error}; correct its name or its package") from error
