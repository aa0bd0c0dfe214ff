"""Counts the places that each token is sent to when experts are chosen evenly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from presim.trace.collective import Routed


def distinct(places: int, experts: int, chosen: int) -> float:
    """The expected number of places that hold one of a token's experts.

    ``chosen`` of ``experts`` are drawn without putting them back, all alike; each place holds the same number of them.

    >>> round(distinct(8, 64, 8), 2)
    5.43
    """
    others = experts - experts // max(places, 1)
    none = math.prod(max(others - drawn, 0) / (experts - drawn) for drawn in range(min(chosen, experts)))
    return places * (1 - none)


def places_of(routed: Routed, places: int, ranks: int) -> float:
    """To how many of ``places`` of so many of all ``ranks`` each a token goes: as was seen, else as chosen evenly."""
    each = ranks // max(places, 1)
    step = each.bit_length() - 1
    if each == 1 << step and each * places == ranks and step < len(routed.spread):
        return routed.spread[step]
    return distinct(places, routed.experts, routed.chosen)
