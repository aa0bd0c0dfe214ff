"""Collectives from a table of measurements."""

from __future__ import annotations

import pytest

from presim import hardware
from presim.cost.collectives.measured import CollectiveRow, Measured, rows_of
from presim.cost.collectives.network_models import collective_models
from presim.cost.price import Origin, Price
from presim.errors import InputError
from presim.trace.schema import Group
from presim.trace.signatures import Collective

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
TABLE = Measured(
    [
        CollectiveRow("all_reduce", 8, 1, 1 << 20, 30.0),
        CollectiveRow("all_reduce", 8, 1, 1 << 22, 60.0),
        CollectiveRow("all_reduce", 8, 1, 1 << 23, 50.0),
        CollectiveRow("all_reduce", 8, 1, 1 << 30, 5000.0),
    ]
)


def priced(size: int, ranks: range = range(8), kind: str = "all_reduce", fused: int = 1) -> Price | None:
    work = Collective(kind, size, "bfloat16", 0, fused=fused)
    return TABLE.alone(work, Group("g", tuple(ranks), len(ranks)), CLUSTER)


def test_measured_sizes_return_the_measured_time() -> None:
    price = priced(1 << 20)
    assert price is not None
    assert (price.duration_ns, price.origin) == (30_000, Origin.MEASURED)


def test_times_between_sizes_are_interpolated_log_log() -> None:
    price = priced(1 << 21)
    assert price is not None
    assert price.duration_ns == pytest.approx((30 * 60) ** 0.5 * 1e3, abs=1)
    assert price.origin == Origin.INTERPOLATED


def test_noise_does_not_make_a_larger_message_faster() -> None:
    price = priced(1 << 23)
    assert price is not None
    assert price.duration_ns == 60_000


def test_the_table_does_not_extrapolate() -> None:
    assert priced(1 << 19) is None
    assert priced(1 << 31) is None
    assert priced(1 << 26) is None, "128 times lies between its neighbours"
    assert priced(1 << 20, range(4)) is None
    assert priced(1 << 20, range(0, 16, 2)) is None, "eight ranks, but on two nodes"
    assert priced(1 << 20, kind="all_gather") is None
    assert priced(1 << 20, fused=2) is None


def test_measurements_take_precedence_over_the_model() -> None:
    row = {"kind": "all_reduce", "ranks": 8, "nodes": 1, "bytes": 1 << 20, "us": 30.0}
    names = [model.name for model in collective_models(_with({"measured": [row]}))]
    assert names == ["measured/collectives", "analytic/hierarchical"]
    assert [model.name for model in collective_models(CLUSTER)] == ["analytic/hierarchical"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"measured": [{"kind": "all_reduce"}]}, "measured]] is invalid: Object missing required field `ranks`"),
        (
            {"measured": [{"kind": "all_reduce", "ranks": 2, "nodes": 4, "bytes": 8, "us": 1.0}]},
            "has an impossible row: .*; correct or remove it",
        ),
        ({"modle": "statistical"}, "has an unknown key modle; use one of model, measured, link, fabric, statistical"),
        ({"model": "guess"}, 'has an unknown model = "guess"; use "white-box" or "statistical"'),
        (
            {"model": "statistical"},
            "statistical] is missing or invalid: Expected `object`, got `null`; create it again with",
        ),
    ],
)
def test_invalid_sections_of_a_file_are_refused(table: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        collective_models(_with(table))


def test_rows_of_the_file_are_read() -> None:
    row = {"kind": "all_reduce", "ranks": 8, "nodes": 1, "bytes": 8, "us": 3}
    assert rows_of({"measured": [row]}) == [CollectiveRow("all_reduce", 8, 1, 8, 3.0)]


def _with(table: dict[str, object]) -> hardware.Cluster:
    return hardware.Cluster(CLUSTER.gpu, CLUSTER.node, CLUSTER.fabric, 2, 8, {}, table)
