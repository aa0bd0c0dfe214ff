"""The fallback chain: first that covers, guesses listed, and what a trace must say about its groups."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import strategies as made
from presim import hardware
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.bounds import datasheet_ns
from presim.cost.chain import Chain, price_trace
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.network_model import Uncongested
from presim.cost.price import Origin, Price
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective, Elementwise, Fused, Gemm, Kernel, Signature

PRODUCT = Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16")
SUM = Elementwise(bytes_read=8, bytes_written=4, elements=1, dtype="float32")
MYSTERY = Kernel(name="mystery", grid=(1, 1, 1), block=(128, 1, 1))
MEASURED = Price(123, Origin.MEASURED, 0.05, "table")


class Table:
    """Knows one product, whatever its size, and notes what it was asked."""

    name = "table"

    def __init__(self) -> None:
        self.asked: list[Signature] = []

    def price(self, signatures: list[Signature]) -> list[Price | None]:
        self.asked += signatures
        return [MEASURED if isinstance(signature, Gemm) else None for signature in signatures]


class Log(Uncongested):
    """A collective model that knows all-reduce only."""

    name = "log"

    def alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        return MEASURED if collective.kind == "all_reduce" else None


@pytest.fixture
def cluster() -> Cluster:
    return hardware.choose_cluster(gpu="h100-sxm", nodes=2)


def build(manifest: Manifest | None = None, *work: Signature) -> TraceBuilder:
    builder = TraceBuilder(manifest)
    for signature in work:
        builder.work(signature)
    return builder


def manifest_with(*groups: Group) -> Manifest:
    return Manifest(world_size=16, rank=0, gpu="h100-sxm", gpus_per_node=8, script="", groups=groups)


def test_the_first_estimator_that_covers_a_signature_prices_it(cluster: Cluster) -> None:
    """And later ones are asked only for what is left."""
    first, second = Table(), Table()
    analytic = AnalyticEstimator(cluster.gpu)
    chain = Chain((first, second, analytic), (), device_of(cluster.gpu))
    prices = chain.price([SUM, PRODUCT], [], cluster)
    assert prices == [*analytic.price([SUM]), MEASURED]
    assert first.asked == [SUM, PRODUCT]
    assert second.asked == [SUM]


def test_collective_models_are_asked_in_their_order(cluster: Cluster) -> None:
    chain = Chain((), (Log(), Hierarchical()), device_of(cluster.gpu))
    group = Group("all", tuple(range(16)), 16)
    reduce, gather = (
        Collective(kind=kind, bytes=64, dtype="bfloat16", group=0) for kind in ("all_reduce", "all_gather")
    )
    prices = chain.price([reduce, gather], [group], cluster)
    assert prices == [MEASURED, Hierarchical().alone(gather, group, cluster)]


def test_what_nobody_covers_is_guessed_listed_and_doubted(cluster: Cluster) -> None:
    priced = price_trace(build(None, PRODUCT, MYSTERY).trace(), cluster)
    assert priced.uncovered == (1,)
    assert (priced.prices[1].estimator, priced.prices[1].uncertainty) == ("guess", 0.9)
    assert priced.prices[0].estimator == "learned/gemm-half"


def test_every_signature_of_the_table_has_one_price(cluster: Cluster) -> None:
    trace = build(None, PRODUCT, SUM, PRODUCT, MYSTERY).trace()
    priced = price_trace(trace, cluster)
    assert len(priced.prices) == len(trace.signatures) == 3
    assert priced.durations_ns()[0] == priced.durations_ns()[2] == priced.prices[0].duration_ns


def test_a_collective_on_a_group_that_the_manifest_lacks_is_refused(cluster: Cluster) -> None:
    trace = build(default_manifest(), Collective(kind="broadcast", bytes=1, dtype="uint8", group=3)).trace()
    said = (
        "the trace has a broadcast on process group 3, but its manifest lists 0 groups; "
        "capture it again with this version of presim"
    )
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        price_trace(trace, cluster)


def test_work_that_takes_longer_than_a_simulation_holds_is_refused(cluster: Cluster) -> None:
    build = TraceBuilder()
    build.work(Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16"))
    build.work(Gemm(m=1 << 24, n=1 << 24, k=1 << 24, batch=1, dtype="bfloat16"))
    message = r"^gemm \(signature 1\) takes [\d,]+ days by [^,]+, and at most 13 can be simulated; correct its "
    with pytest.raises(InputError, match=message + r"sizes, or the figures of h100-sxm and links$"):
        price_trace(build.trace(), cluster)


def test_a_cluster_smaller_than_the_job_is_refused(cluster: Cluster) -> None:
    trace = build(manifest_with(Group("dp", (0, 16), 2))).trace()
    said = (
        "the trace's process groups reach rank 16, but the cluster has 16 GPUs (2 nodes of 8); "
        "name a cluster of at least 17 GPUs"
    )
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        price_trace(trace, cluster)


class Dreamer:
    """Says that everything takes a nanosecond."""

    name = "dreamer"

    def price(self, signatures: list[Signature], *_: object) -> list[Price | None]:
        return [Price(1, Origin.MEASURED, 0.05, self.name) for _ in signatures]


class FastWires(Uncongested):
    """Likewise of collectives."""

    name = "fast wires"

    def alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        return Price(1, Origin.MEASURED, 0.05, self.name)


@settings(max_examples=50, deadline=None)
@given(st.lists(made.signatures(), min_size=1, max_size=6))
def test_no_price_is_below_what_the_datasheet_allows_whoever_says_it(signatures: list[Signature]) -> None:
    cluster = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
    groups = (Group("world", tuple(range(16)), 16),)
    alone = [one for one in signatures if not isinstance(one, Collective)]
    known = [*alone, Collective("all_reduce", 1 << 30, "bfloat16", 0)]
    chain = Chain([Dreamer()], [FastWires()], device_of(cluster.gpu))
    prices, _ = chain.price_all(known, groups, cluster)
    for signature, price in zip(alone, prices):
        assert price.duration_ns >= datasheet_ns(signature, cluster.gpu)
    assert prices[-1].duration_ns > 1e9 * (1 << 30) / cluster.gpu.nvlink_bytes_per_s / 4


def test_products_within_a_kernel_have_a_floor_as_well() -> None:
    cluster = hardware.choose_cluster(gpu="h100-sxm")
    kernel = Fused("mine", 1, 1, 1, "bfloat16", products=(("bfloat16", 2 * 8192**3),))
    (price,), _ = Chain([Dreamer()], [], device_of(cluster.gpu)).price_all([kernel], (), cluster)
    assert price.duration_ns == pytest.approx(2 * 8192**3 / 989e12 * 1e9, rel=0.01)


def test_a_guess_says_so_and_may_be_ten_times_as_long() -> None:
    priced = price_trace(trace_of(MYSTERY), hardware.choose_cluster(gpu="h100-sxm"))
    assert priced.prices[0].origin is Origin.GUESSED
    assert priced.prices[0].longer == 9.0


@pytest.mark.parametrize(("gpu", "shared"), [("h100-sxm", 0.0), ("mi300x", 2 / 3)])
def test_what_nobody_measured_shares_its_uncertainty(gpu: str, shared: float) -> None:
    """Constants of another generation double it, a GPU model that nobody measured adds a half."""
    (price,) = AnalyticEstimator(hardware.gpu(gpu)).price([PRODUCT])
    assert price is not None
    assert price.shared == pytest.approx(shared * price.uncertainty)


def trace_of(signature: Signature) -> Trace:
    build = TraceBuilder()
    build.work(signature)
    return build.trace()
