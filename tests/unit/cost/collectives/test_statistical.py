"""TorchSim's statistical model of collectives."""

from __future__ import annotations

import math

import msgspec
import pytest

from presim import hardware
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.measurements import FEWEST, CollectiveMeasurement
from presim.cost.collectives.statistical import (
    Curve,
    Parameters,
    Statistical,
    _ratio,
    fit_statistical,
    updated_weights,
    with_stragglers,
)
from presim.trace.schema import Group
from presim.trace.signatures import Collective

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", nodes=8)
CURVE = Curve(floor=1.0, height=300.0, steepness=0.8, middle=math.log(8 << 20), latency_us=1.0)
PLAIN = Parameters(CURVE, CURVE, {"all_gather": (1.0, 0.0, 0.0)})


def work(size: int, kind: str = "all_gather") -> Collective:
    return Collective(kind, size, "bfloat16", 0)


def us(parameters: Parameters, size: int, ranks: int = 8) -> float:
    price = Statistical(parameters).alone(work(size), Group("g", tuple(range(ranks)), ranks), CLUSTER)
    assert price is not None
    return price.duration_ns / 1e3


def points() -> list[CollectiveMeasurement]:
    found = []
    for ranks in (8, 16, 64):
        for kind in ("all_gather", "all_reduce"):
            for power in range(12, 33):
                price = Hierarchical().alone(work(1 << power, kind), Group("g", tuple(range(ranks)), ranks), CLUSTER)
                found.append(
                    CollectiveMeasurement(
                        work(1 << power, kind), tuple(range(ranks)), CLUSTER, price.duration_ns * 1e-9, kind
                    )
                )
    return found


def test_bandwidth_is_a_sigmoid_of_the_size() -> None:
    assert CURVE.GBps(8 << 20) == pytest.approx(151)
    assert CURVE.GBps(1) == pytest.approx(1, abs=0.01)
    assert CURVE.GBps(1 << 40) == pytest.approx(301, abs=0.1)


def test_a_large_message_takes_bytes_divided_by_bandwidth() -> None:
    size = 64 << 30
    assert us(PLAIN, size) == pytest.approx(7 / 8 * size / CURVE.GBps(size) / 1e3, rel=0.01)


def test_a_fit_reproduces_its_measurements() -> None:
    """Of the white-box model's own times, whose bends no sigmoid has, half are met to 20 %."""
    fitted = fit_statistical(points())
    errors = sorted(
        abs(us_of(fitted, point) / (point.seconds * 1e6) - 1) for point in points() if point.collective.bytes > 1 << 16
    )
    assert errors[len(errors) // 2] < 0.2
    assert 0.05 <= fitted.uncertainty < 0.5


def us_of(parameters: Parameters, point: CollectiveMeasurement) -> float:
    group = Group("g", point.ranks, len(point.ranks))
    price = Statistical(parameters).alone(point.collective, group, CLUSTER)
    assert price is not None
    return price.duration_ns / 1e3


def test_stragglers_stretch_the_minimum_by_ranks_and_size() -> None:
    """A ratio measured on every rank: 1 + 0.001 * ranks * ln(bytes)."""
    seen = [
        (ranks, 1 << power, 1 + 1e-3 * ranks * math.log(1 << power)) for ranks in (8, 16, 64) for power in (10, 20, 30)
    ]
    late = with_stragglers(PLAIN, [("all_reduce", *row) for row in seen])
    assert late.straggler == (pytest.approx(1.0), pytest.approx(1e-3))
    assert us(late, 1 << 30) == pytest.approx(us(PLAIN, 1 << 30) * (1 + 8e-3 * math.log(1 << 30)), rel=1e-4)


def test_observations_move_the_weights_towards_them() -> None:
    """A cluster that takes half as long again: after thirty collectives the model is within 3 % of it."""
    ranks = tuple(range(8))
    truth = [CollectiveMeasurement(work(1 << 28), ranks, CLUSTER, us(PLAIN, 1 << 28) * 1.5e-6, "job")] * 30
    moved = updated_weights(PLAIN, truth)
    assert us(moved, 1 << 28) == pytest.approx(truth[0].seconds * 1e6, rel=0.03)
    once = updated_weights(PLAIN, truth[:1])
    assert us(PLAIN, 1 << 28) < us(once, 1 << 28) < us(moved, 1 << 28)


def test_kinds_that_were_not_fitted_are_left_to_the_next_model() -> None:
    assert Statistical(PLAIN).alone(work(8, "all_to_all"), Group("g", (0, 1), 2), CLUSTER) is None
    assert Statistical(PLAIN).alone(work(8), Group("g", (0,), 1), CLUSTER) is None


def test_no_price_is_below_the_link_bandwidth() -> None:
    fast = msgspec.structs.replace(PLAIN, within=msgspec.structs.replace(CURVE, height=1e6))
    assert us(fast, 1 << 30) == pytest.approx(7 / 8 * (1 << 30) / 450e3, rel=1e-3)


def test_stragglers_differ_by_kind_and_by_size_of_group() -> None:
    """Planted ratios come back; what was observed too rarely has that of its kind, or of all."""
    sizes = [1 << power for power in range(12, 12 + 2 * FEWEST)]
    observed = [("all_reduce", 64, size, 1.5) for size in sizes] + [("all_reduce", 8, size, 1.1) for size in sizes]
    observed += [("all_gather", 8, size, 2.0) for size in sizes] + [("broadcast", 8, 1 << 20, 1.0)]
    late = with_stragglers(PLAIN, observed)
    assert set(late.straggler_of) == {"all_reduce", "all_reduce 8", "all_reduce 64", "all_gather", "all_gather 8"}

    def ratio(kind: str, ranks: int) -> float:
        return _ratio(late, kind, ranks, 1 << 20)

    assert (ratio("all_reduce", 64), ratio("all_reduce", 8)) == (pytest.approx(1.5), pytest.approx(1.1))
    assert (ratio("all_gather", 8), ratio("all_gather", 32)) == (pytest.approx(2.0), pytest.approx(2.0))
    assert 1.0 <= ratio("broadcast", 8) < 2.0
