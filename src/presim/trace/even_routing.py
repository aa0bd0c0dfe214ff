"""Counts the places that each token is sent to when experts are chosen evenly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from presim.trace.collective import Routed


def distinct(places: int, experts: int, experts_per_token: int) -> float:
    """The expected number of places with at least one of a token's experts.

    ``experts_per_token`` of ``experts`` are drawn uniformly without replacement; each place holds equally many.

    >>> round(distinct(8, 64, 8), 2)
    5.43
    """
    experts_elsewhere = experts - experts // max(places, 1)
    no_expert_probability = math.prod(
        max(experts_elsewhere - drawn, 0) / (experts - drawn) for drawn in range(min(experts_per_token, experts))
    )
    return places * (1 - no_expert_probability)


def places_of(routed: Routed, places: int, ranks: int) -> float:
    """The mean number of ``places``, each with an equal part of ``ranks``, that a token goes to.

    From the captured spread if it has this size, else for experts drawn evenly.
    """
    ranks_per_place = ranks // max(places, 1)
    spread_index = ranks_per_place.bit_length() - 1
    if ranks_per_place == 1 << spread_index and ranks_per_place * places == ranks and spread_index < len(routed.spread):
        return routed.spread[spread_index]
    return distinct(places, routed.experts, routed.chosen)
