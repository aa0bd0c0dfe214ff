"""Releases of SGLang that generate at different speeds, and by how much."""

from __future__ import annotations

from typing import Literal, TypeAlias

SglangRelease: TypeAlias = Literal["0.4.6", "0.5"]
# Factor on the device time of a step. 0.4.6 is of May 2025, and what verl 0.5 and RLinf's first version install: three
# of their published rollouts take 1.52 to 1.59 times as long as simulated (validation/results/sglang-rollouts.md).
STEP_SCALES: dict[SglangRelease, float] = {"0.4.6": 1.55, "0.5": 1.0}
