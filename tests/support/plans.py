"""What planners make of a row: the recipe's arguments, or why there are none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.planners import plan

ELSEWHERE = "`presim hardware list` shows all; the path of a .toml file describes another one"


def arguments(row: Mapping[str, str]) -> str:
    """The arguments of the recipe that the row becomes, in one line."""
    return " ".join(plan(Case(row)).args)


def refusal(row: Mapping[str, str]) -> str:
    """Why the row cannot be built."""
    with pytest.raises(CannotBuildError) as raised:
        plan(Case(row))
    return str(raised.value)
