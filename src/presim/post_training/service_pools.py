"""Roles that answer in wall-clock time: an environment between turns, and a judge of complete responses."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

ServiceRole: TypeAlias = Literal["environment", "judge"]


@dataclasses.dataclass(frozen=True)
class ServicePool:
    """An environment or a judge: on GPUs of its own, or on none of the cluster's."""

    name: str
    role: ServiceRole
    gpus: int = 0  # 0: it runs on CPUs, or elsewhere

    @property
    def label(self) -> str:
        """Its name beside those of other pools."""
        return self.name if self.name == self.role else f"{self.role} {self.name}"
