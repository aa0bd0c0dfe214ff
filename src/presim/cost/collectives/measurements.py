"""Measurements of collectives: the input of fits."""

from __future__ import annotations

import dataclasses

from presim.hardware import Cluster
from presim.trace.signatures import Collective

FEWEST = 12  # minimum number of points for a fit; fewer would fit noise


@dataclasses.dataclass(frozen=True)
class CollectiveMeasurement:
    """One measurement. ``log`` names its measurement campaign; all campaigns have the same weight in a fit."""

    collective: Collective
    ranks: tuple[int, ...]
    cluster: Cluster
    seconds: float
    log: str
