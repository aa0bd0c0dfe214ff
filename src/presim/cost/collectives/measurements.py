"""Measurements of collectives, as fits take them."""

from __future__ import annotations

import dataclasses

from presim.hardware import Cluster
from presim.trace.signatures import Collective

FEWEST = 12  # points, below which a fit would follow noise


@dataclasses.dataclass(frozen=True)
class Point:
    """One measurement; ``log`` names what counts as one measurement campaign: all of them weigh the same."""

    collective: Collective
    ranks: tuple[int, ...]
    cluster: Cluster
    seconds: float
    log: str
