"""Number of NCCL channels of a collective. Each channel is a thread block that occupies one SM."""

from __future__ import annotations

import math

from presim.cost.collectives.collective_constants import channel_constants
from presim.cost.collectives.group_placement import GroupPlacement, Links
from presim.cost.collectives.nccl_environment import Tuning
from presim.trace.signatures import Collective


def channels(collective: Collective, layout: GroupPlacement, links: Links, tuning: Tuning) -> int:
    """Channels of one call; at least 1. Small calls use fewer channels."""
    limit = most_channels(collective.kind, layout, links, tuning)
    return max(1, min(limit, math.ceil(max(collective.even.bytes, 0) / channel_constants().bytes_each)))


def most_channels(kind: str, layout: GroupPlacement, links: Links, tuning: Tuning) -> int:
    """Channels of a large call of this kind."""
    constants = channel_constants()
    if not links.nvlink and layout.nodes == 1:
        channel_limit = constants.pcie
    elif layout.nodes == 1:
        channel_limit = constants.one_node.get(links.generation, constants.one_node_default)
    else:
        channel_limit = max(2, min(constants.several_nodes, 2 * layout.per_node))
    if kind in ("send", "recv", "send_recv"):
        channel_limit = min(channel_limit, constants.message)
    return min(max(channel_limit, tuning.fewest_channels), tuning.most_channels)
