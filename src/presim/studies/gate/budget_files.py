"""Reads budget files: jobs with their limits."""

from __future__ import annotations

from pathlib import Path

import msgspec

from presim.errors import InputError
from presim.system.files import FormatError, convert, decode_toml, read_text, shortened
from presim.system.files.field_bounds import PerSecond, Ratio, Real, Seconds


class JobBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job and its limits. Missing limits are not checked."""

    name: str
    run: tuple[str, ...] = ()  # arguments of `presim run`: options, then the script or launch command
    simulate: tuple[str, ...] = ()  # arguments of `presim simulate` instead: a saved job, then options
    step_time_s: Seconds | None = None  # at most
    memory_GiB: Real | None = None  # at most, on the fullest rank: reserved, and what libraries and the driver hold
    exposed_communication_s: Seconds | None = None  # at most
    mfu: Ratio | None = None  # at least
    tokens_per_s: PerSecond | None = None  # at least, of the whole job
    step_time_increase: Real | None = None  # at most, relative to the baseline: 0.05 is 5 %
    memory_increase: Real | None = None  # likewise

    @property
    def words(self) -> tuple[str, ...]:
        """The verb with its arguments."""
        return ("run", *self.run) if self.run else ("simulate", *self.simulate)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    job: tuple[JobBudget, ...]


_LONGEST_NAME = 200  # bytes; file systems allow 255 with an ending
LIMITS = (
    "step_time_s",
    "memory_GiB",
    "exposed_communication_s",
    "mfu",
    "tokens_per_s",
    "step_time_increase",
    "memory_increase",
)


def read(path: Path) -> tuple[JobBudget, ...]:
    """The budgets of a file.

    Raises:
        InputError: it cannot be read, a field is unknown, a job has no command, no limit, or another's name.
    """
    try:
        content = decode_toml(read_text(path, "name a file of budgets"))
    except FormatError as error:
        raise InputError(f"{path} is no TOML: {error}; correct it") from error
    try:
        budgets = convert(content, _File).job
    except FormatError as error:
        raise InputError(f"{path}: {error}; each [[job]] has a name, run or simulate, and limits") from error
    if not budgets:
        raise InputError(f"{path} has no [[job]]; add one")
    for budget in budgets:
        _check(budget, path, [other.name for other in budgets])
    return budgets


def _check(budget: JobBudget, path: Path, names: list[str]) -> None:
    if (
        not budget.name
        or not budget.name.isprintable()
        or "/" in budget.name
        or len(budget.name.encode()) > _LONGEST_NAME
    ):
        raise InputError(f"{path}: a job's name is used for its files; {shortened(budget.name)!r} cannot be one")
    if names.count(budget.name) > 1:
        raise InputError(f"{path}: {names.count(budget.name)} jobs are called {budget.name!r}; give each its own name")
    if any("\0" in word for word in budget.words):
        raise InputError(f"{path}: a word of job {budget.name!r} holds a null byte; leave it out")
    if bool(budget.run) == bool(budget.simulate):
        raise InputError(f"{path}: job {budget.name!r} needs either run or simulate, the words of that verb")
    if not any(getattr(budget, limit) is not None for limit in LIMITS):
        raise InputError(f"{path}: job {budget.name!r} has no limit; set one of {', '.join(LIMITS)}")
