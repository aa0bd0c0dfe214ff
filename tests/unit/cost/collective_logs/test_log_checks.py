"""Figures that wires do not allow, or that come twice, are no part of a fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim import hardware
from presim.cost.collective_logs.bandwidth_bounds import impossible, least_seconds
from presim.cost.collective_logs.log_checks import left_out, possible_rows
from presim.cost.collective_logs.nccl_tests import Log
from presim.cost.collectives.hierarchical import Hierarchical
from presim.errors import InputError
from presim.trace.collective import COLLECTIVE_KINDS, Collective
from presim.trace.schema import Group

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", nodes=4)


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
@pytest.mark.parametrize("ranks", [range(2), range(8), range(32), range(0, 32, 8), range(1)])
@pytest.mark.parametrize("power", [10, 24, 34])
def test_the_model_is_never_faster_than_the_wires(kind: str, ranks: range, power: int) -> None:
    work = Collective(kind, 1 << power, "bfloat16", 0)
    price = Hierarchical().alone(work, Group("g", tuple(ranks), len(ranks)), CLUSTER)
    assert price.duration_ns * 1e-9 > least_seconds(work, tuple(ranks), CLUSTER)


def test_what_is_faster_than_an_nvlink_port_is_impossible() -> None:
    """450 GB/s into each of 8 GPUs: a gathered GiB takes 2.09 ms."""
    work = Collective("all_gather", 1 << 30, "bfloat16", 0)
    assert least_seconds(work, tuple(range(8)), CLUSTER) == pytest.approx(7 / 8 * (1 << 30) / 450e9)
    assert impossible(work, tuple(range(8)), CLUSTER, 2.2e-3) == ""
    assert impossible(work, tuple(range(8)), CLUSTER, 2e-6) == "faster than the links allow"


def log(name: str, *rows: tuple[int, float]) -> Log:
    return Log(Path(name), "all_gather", 8, 1, "NVIDIA H100 80GB HBM3", rows, {"no bytes or no time": 1})


def test_lines_faster_than_the_wires_are_counted() -> None:
    (kept,) = possible_rows([log("a", (1 << 30, 3000.0), (1 << 29, 3.0))], CLUSTER)
    assert kept.rows == ((1 << 30, 3000.0),)
    assert kept.rejected == {"no bytes or no time": 1, "faster than hgx-h100 allows": 1}
    assert left_out([kept, kept]) == (
        "; 2 lines were left out: faster than hgx-h100 allows; 2 lines were left out: no bytes or no time"
    )


def test_a_log_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match=r"^b and a have the same figures; give each log only once$"):
        possible_rows([log("a", (8, 9.0)), log("b", (8, 9.0))], CLUSTER)
