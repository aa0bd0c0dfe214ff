"""Collectives from a table of measurements."""

from __future__ import annotations

import pytest

from presim import hardware
from presim.cost.collectives.measured import Measured, Row, rows_of
from presim.cost.collectives.models import collective_models
from presim.cost.price import Origin, Price
from presim.errors import InputError
from presim.trace.schema import Group
from presim.trace.signatures import Collective

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
TABLE = Measured(
    [
        Row("all_reduce", 8, 1, 1 << 20, 30.0),
        Row("all_reduce", 8, 1, 1 << 22, 60.0),
        Row("all_reduce", 8, 1, 1 << 23, 50.0),
        Row("all_reduce", 8, 1, 1 << 30, 5000.0),
    ]
)


def priced(size: int, ranks: range = range(8), kind: str = "all_reduce", fused: int = 1) -> Price | None:
    work = Collective(kind, size, "bfloat16", 0, fused=fused)
    return TABLE.alone(work, Group("g", tuple(ranks), len(ranks)), CLUSTER)


def test_what_was_measured_is_answered_as_it_was() -> None:
    price = priced(1 << 20)
    assert price is not None
    assert (price.duration_ns, price.origin) == (30_000, Origin.MEASURED)


def test_between_sizes_the_line_in_log_and_log_stands() -> None:
    price = priced(1 << 21)
    assert price is not None
    assert price.duration_ns == pytest.approx((30 * 60) ** 0.5 * 1e3, abs=1)
    assert price.origin == Origin.INTERPOLATED


def test_noise_does_not_make_a_larger_message_faster() -> None:
    price = priced(1 << 23)
    assert price is not None
    assert price.duration_ns == 60_000


def test_beyond_its_hull_the_table_is_silent() -> None:
    assert priced(1 << 19) is None
    assert priced(1 << 31) is None
    assert priced(1 << 26) is None, "128 times lies between its neighbours"
    assert priced(1 << 20, range(4)) is None
    assert priced(1 << 20, range(0, 16, 2)) is None, "eight ranks, but on two nodes"
    assert priced(1 << 20, kind="all_gather") is None
    assert priced(1 << 20, fused=2) is None


def test_a_cluster_s_table_comes_before_the_model() -> None:
    row = {"kind": "all_reduce", "ranks": 8, "nodes": 1, "bytes": 1 << 20, "us": 30.0}
    names = [model.name for model in collective_models(_with({"measured": [row]}))]
    assert names == ["measured/collectives", "analytic/hierarchical"]
    assert [model.name for model in collective_models(CLUSTER)] == ["analytic/hierarchical"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"measured": [{"kind": "all_reduce"}]}, "measured]] cannot be read: Object missing required field `ranks`"),
        (
            {"measured": [{"kind": "all_reduce", "ranks": 2, "nodes": 4, "bytes": 8, "us": 1.0}]},
            "has an impossible row: .*; correct or drop it",
        ),
        ({"modle": "statistical"}, "has no key modle; there are model, measured, link, fabric, statistical"),
        ({"model": "guess"}, 'has model = "guess"; there are "white-box" and "statistical"'),
        ({"model": "statistical"}, "statistical] cannot be used: Expected `object`, got `null`; make it anew with"),
    ],
)
def test_what_a_file_must_not_say_is_refused_in_a_sentence(table: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        collective_models(_with(table))


def test_rows_are_read_as_they_stand() -> None:
    row = {"kind": "all_reduce", "ranks": 8, "nodes": 1, "bytes": 8, "us": 3}
    assert rows_of({"measured": [row]}) == [Row("all_reduce", 8, 1, 8, 3.0)]


def _with(table: dict[str, object]) -> hardware.Cluster:
    return hardware.Cluster(CLUSTER.gpu, CLUSTER.node, CLUSTER.fabric, 2, 8, {}, table)
