"""How many channels a collective uses: each is a thread block that keeps one streaming multiprocessor busy."""

from __future__ import annotations

import math

from presim.cost.collectives.environment import Tuning
from presim.cost.collectives.placement import Layout, Links
from presim.trace.signatures import Collective

# "coll channels" and "p2p channels" as NCCL 2.18 to 2.29 prints them (NCCL_DEBUG=INFO): one node of A100 or H100 24 and
# 32, several nodes with a port for each GPU 16 and 16 (NVIDIA/nccl issue 892, H800), two ports for four GPUs 8 (issue
# 1189, H20): two for each port.
_ONE_NODE = {"volta": 12, "turing": 4, "ada": 4}
_ONE_NODE_DEFAULT = 24
_SEVERAL_NODES = 16
_PCIE = 4
_MESSAGE = 4  # send and receive: a message is cut into few parts
_BYTES_EACH = 512 * 64  # less than this for each channel and NCCL takes fewer (threads x threadThreshold of Simple)


def channels(collective: Collective, layout: Layout, links: Links, tuning: Tuning) -> int:
    """Channels of one call; at least 1."""
    most = most_channels(collective.kind, layout, links, tuning)
    return max(1, min(most, math.ceil(max(collective.even.bytes, 0) / _BYTES_EACH)))


def most_channels(kind: str, layout: Layout, links: Links, tuning: Tuning) -> int:
    """Channels of a large call."""
    if not links.nvlink and layout.nodes == 1:
        most = _PCIE
    elif layout.nodes == 1:
        most = _ONE_NODE.get(links.generation, _ONE_NODE_DEFAULT)
    else:
        most = max(2, min(_SEVERAL_NODES, 2 * layout.per_node))
    if kind in ("send", "recv", "send_recv"):
        most = min(most, _MESSAGE)
    return min(max(most, tuning.fewest_channels), tuning.most_channels)
