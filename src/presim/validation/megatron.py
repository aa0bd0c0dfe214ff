"""Plans of Megatron's family: tensor, pipeline and data parallelism with its own layers and optimizer."""

from __future__ import annotations

from presim.validation.cases import CannotBuildError, Case
from presim.validation.plan import Plan


def plan_megatron(case: Case) -> Plan:
    """No recipe yet."""
    raise CannotBuildError("there is no recipe for Megatron yet")
