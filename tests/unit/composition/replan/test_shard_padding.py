"""FSDP2 pads the shards of weights with fewer rows than ranks, which two smaller captures do not show."""

from __future__ import annotations

import dataclasses

import pytest

from presim.composition.replan.shard_padding import check_padding, padded_share, padding
from presim.errors import InputError
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Phase, Trace
from presim.trace.signatures import Gemm


def fully_sharded() -> Trace:
    """Two linear layers of 1,024 and 4,096 rows with as many elements, under FSDP2."""
    build = TraceBuilder(default_manifest())
    for rows, columns in ((1024, 4096), (4096, 1024)):
        product = Gemm(8192, rows, columns, 1, "bfloat16", layout="NT")
        build.work(product, phase=Phase.FORWARD, operator="FSDP::all_gather_copy_out_(layers.0)")
    build.work(Gemm(8192, 1, 7, 1, "bfloat16", layout="NN"), phase=Phase.BACKWARD)
    build.step()
    return build.trace()


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [(8, 1.0), (1024, 1.0), (2048, (2 + 1) / 2), (16384, (16 + 4) / 2), (3000, 0.5 * 3000 / 1024 + 0.5 * 6000 / 4096)],
)
def test_padding_is_that_of_rows_split_evenly(ranks: int, expected: float) -> None:
    assert padding(fully_sharded(), ranks) == pytest.approx(expected)


def test_other_ways_to_shard_pad_nothing() -> None:
    """FSDP1 and ZeRO split flat buffers."""
    flat = dataclasses.replace(fully_sharded(), operators=("", "_all_gather_base"))
    assert padding(flat, 16384) == 1.0


def test_more_padding_than_in_the_captures_is_refused_with_what_to_do() -> None:
    check_padding([fully_sharded()], 64, 1024, 1024)
    with pytest.raises(InputError, match=r"on 2048 ranks it pads .* 1\.50 times .* --world-size 4096"):
        check_padding([fully_sharded()], 64, 2048, 4096)


def test_a_share_is_at_least_the_parameter() -> None:
    assert all(padded_share(rows, ranks) >= 1 for rows in (1, 7, 4096) for ranks in (1, 3, 4096, 10_000))
