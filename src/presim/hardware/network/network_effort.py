"""Estimates what a simulation of collectives on a network takes, before it starts."""

from __future__ import annotations

from collections.abc import Sequence

from presim.hardware.network.exchange import ROUTED, Exchange, Resolution
from presim.hardware.network.topology import Topology
from presim.system import budgets

# Measured with all-to-alls and dispatches of 1,024 to 8,192 H100s in fat trees, 2 cores of an Intel Xeon that others
# used: 1.3 to 2.5 us and 375 to 400 bytes a flow; 0.9 to 2.3 us and 283 bytes with --resolution link.
_FLOW_S: dict[Resolution, float] = {"flow": 2e-6, "link": 1.5e-6}
_FLOW_BYTES: dict[Resolution, float] = {"flow": 400.0, "link": 290.0}
_WHAT_ELSE = "name fewer ranks with --ranks, or raise --budget, e.g. --budget 2h,64GiB"


def check(
    topology: Topology, exchanges: Sequence[Exchange], resolution: Resolution, budget: budgets.Budget | None = None
) -> None:
    """Check exchanges before they are simulated; ``budget``: None is the default.

    Raises:
        InputError: they would take more than the budget.
    """
    flows = sum(count_flows(exchange, topology) for exchange in exchanges)
    ranks = sum(len(exchange.ranks) for exchange in exchanges)
    flow_s, flow_bytes = _FLOW_S[resolution], _FLOW_BYTES[resolution]
    things = f"flows of {exchanges[0].kind} between {ranks:,} GPUs"
    budgets.check(budgets.Estimate(flows, things, flows * flow_s, flows * flow_bytes), budget, _WHAT_ELSE)


def count_flows(exchange: Exchange, topology: Topology) -> int:
    """The most flows that an exchange has."""
    ranks, per_node = len(exchange.ranks), max(topology.gpus_per_node, 1)
    if exchange.kind == "all_to_all":
        return ranks * (ranks - 1)
    if exchange.kind in ROUTED:
        members: dict[int, int] = {}
        for rank in exchange.ranks:
            members[rank // per_node] = members.get(rank // per_node, 0) + 1
        is_even = len(set(members.values())) == 1
        return ranks * (len(members) - 1 if is_even else ranks - 1)
    orders = per_node if (topology.target[topology.source < topology.gpus] < topology.gpus).any() else 1
    return ranks * per_node * orders  # a mesh has rings in several orders
