"""What every estimator and every network model promises, as checks that a plug-in's own tests can call.

Each check raises AssertionError with the signature and the numbers. ``tests/conformance`` runs them over everything
built in; a plug-in author does the same:

    from presim.cost import conformance
    conformance.check_answers(MyEstimator(gpu), signatures)
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.cost.bounds import datasheet_ns
from presim.cost.collectives.network_model import NetworkModel, Transfer
from presim.cost.price import Estimator, Origin, Price
from presim.hardware import Cluster, Gpu
from presim.trace.schema import Group
from presim.trace.signatures import Collective, Signature

_ROUNDING_NS = 1


def check_answers(estimator: Estimator, signatures: Sequence[Signature]) -> list[Price | None]:
    """Check for one well-formed price per signature, whatever the order, repetition or company of the signatures."""
    ordered = list(signatures)
    prices = estimator.price(ordered)
    assert len(prices) == len(ordered), f"{estimator.name}: {len(prices)} answers to {len(ordered)} signatures"
    assert estimator.price(ordered) == prices, f"{estimator.name}: a second call gives different prices"
    backwards = estimator.price(ordered[::-1])[::-1]
    for signature, price, other in zip(ordered, prices, backwards):
        assert price == other, f"{estimator.name}: {signature} costs {price}, in another order {other}"
        assert estimator.price([signature]) == [price], (
            f"{estimator.name}: {signature} has another price when priced alone"
        )
        if price is not None:
            check_price(price, str(signature))
    return prices


def check_transfers(model: NetworkModel, transfers: Sequence[Transfer], cluster: Cluster) -> list[Price | None]:
    """Check the answers to a set of transfers that run at the same time.

    One well-formed price per transfer, the same again and in another order. Company decides how long a transfer takes
    but not whether it is covered, and makes none faster than alone.
    """
    prices = list(model.price(transfers, cluster))
    assert len(prices) == len(transfers), f"{model.name}: {len(prices)} answers to {len(transfers)} transfers"
    assert list(model.price(transfers, cluster)) == prices, f"{model.name}: a second call answers differently"
    backwards = list(model.price(transfers[::-1], cluster))[::-1]
    for transfer, price, other in zip(transfers, prices, backwards):
        description = str(transfer.collective)
        assert price == other, f"{model.name}: {description} takes {price}, in another order {other}"
        (uncontended,) = model.price([transfer], cluster)
        assert (uncontended is None) == (price is None), (
            f"{model.name}: {description} alone is {uncontended}, among others {price}"
        )
        if price is not None and uncontended is not None:
            check_price(price, description)
            least = uncontended.duration_ns
            assert price.duration_ns >= least, (
                f"{model.name}: {description} takes {least} ns alone, {price} among others"
            )
    return prices


def check_price(price: Price, description: str) -> None:
    """Check that a price is a positive whole number of ns with an origin, a name and an uncertainty."""
    assert type(price.duration_ns) is int, (
        f"{description}: duration is not an int but {type(price.duration_ns).__name__}"
    )
    assert price.duration_ns > 0, f"{description}: takes {price.duration_ns} ns"
    assert isinstance(price.origin, Origin), f"{description}: origin {price.origin!r}"
    assert 0 < price.uncertainty < 1, f"{description}: uncertainty {price.uncertainty}"
    assert price.estimator, f"{description}: the estimator has no name"


def check_order(estimator: Estimator, smaller: Signature, larger: Signature, *, exact: bool = True) -> None:
    """Check that more of the same work takes no less time.

    Without ``exact``, only up to the uncertainty of the two prices. Real kernels are not monotone: a shape that fills
    its last wave takes no longer than a smaller one that does not. Prices that follow measurements are not monotone
    either.
    """
    low, high = estimator.price([smaller, larger])
    if low is not None and high is not None:
        lows, highs = float(low.duration_ns), float(high.duration_ns)
        if not exact:
            lows, highs = lows * (1 - low.uncertainty), highs * (1 + high.uncertainty)
        assert lows <= highs, f"{estimator.name}: {smaller} takes {lows} ns, the larger {larger} only {highs} ns"


def check_roofline(estimator: Estimator, signature: Signature, gpu: Gpu) -> None:
    """Check that no price beats the datasheet: peak FLOP/s, and memory bandwidth for bytes beyond the L2 cache."""
    (price,) = estimator.price([signature])
    if price is not None:
        least = datasheet_ns(signature, gpu)
        took = price.duration_ns
        assert took + _ROUNDING_NS >= least, f"{signature}: {took} ns, roofline {least:.0f} ns"


def check_collective_bound(price: Price, collective: Collective, group: Group, cluster: Cluster) -> None:
    """Check that no price beats the links of a GPU within a node or the ports of a node."""
    least = wires_ns(collective, group, cluster)
    assert price.duration_ns + _ROUNDING_NS >= least, f"{collective} takes {price.duration_ns} ns, wires {least:.0f} ns"


def wires_ns(collective: Collective, group: Group, cluster: Cluster) -> float:
    """Minimum time by link bandwidth for any algorithm, in-switch reduction included, ns."""
    ranks = group.ranks or tuple(range(group.size))
    count, size = len(ranks), collective.bytes
    domains = [cluster.domain(rank) for rank in ranks]
    nodes, fullest = len(set(domains)), max(map(domains.count, set(domains)), default=1)
    if count < 2 or collective.kind in ("barrier", "send", "recv", "send_recv"):
        return 0.0
    share = (count - 1) / count
    if collective.kind == "all_reduce":
        share = 1.0  # a switch that reduces and multicasts needs each rank's data only once in each direction
    links = share * size * (fullest - 1) / max(count - 1, 1) / cluster.link_bytes_per_s
    across = 2 * (nodes - 1) / nodes if collective.kind == "all_reduce" else (count - fullest) / count
    home = max(sorted(set(domains)), key=domains.count, default=0)
    places = [rank % cluster.domain_size for rank in ranks if cluster.domain(rank) == home]
    ports = across * size / (cluster.network_bytes_per_s_of(places) * fullest) if nodes > 1 else 0.0
    return max(links, ports) * 1e9
