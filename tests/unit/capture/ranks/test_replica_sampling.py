"""How many ranks are compared within a limited time."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from presim import hardware
from presim.capture.ranks.rank_selection import Checks
from presim.capture.ranks.replica_sampling import Sampling


class _Setting:
    cluster = hardware.choose_cluster(gpu="h100-sxm", nodes=16, gpus_per_node=8)


def sampling(cpu_s: float, left_s: float = 20.0, checks: Checks | None = None, reads: tuple[str, ...] = ()) -> Any:
    """Rank 0 of 128 has run, and took so much CPU time."""
    replicas: Any = Sampling(None, checks or Checks(), _Setting(), lambda text: None)  # type: ignore[arg-type]
    replicas._end_s, replicas._cpu_s, replicas.reads = time.monotonic() + left_s, cpu_s, reads
    return replicas


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


@pytest.mark.parametrize(("cpu_s", "replicas"), [(0.5, 78), (9.0, 3), (15.0, 1), (39.0, 0)])
def test_a_wave_fits_the_time_to_compare(cpu_s: float, replicas: int) -> None:
    """Rank 0 runs again beside the others, on two cores."""
    assert sampling(cpu_s)._replicas_in_time() == pytest.approx(replicas, abs=1 if cpu_s < 1 else 0)


def test_a_program_that_reads_its_rank_is_compared_whole() -> None:
    reads = ("train.py:3 (os.environ)",)
    assert sampling(15.0, reads=reads)._replicas_in_time() == sampling(15.0, checks=Checks(5))._replicas_in_time() >= 15


def test_no_rank_starts_after_the_time() -> None:
    assert sampling(0.1, left_s=-1.0)._replicas_in_time() == 0
    assert sampling(0.1, left_s=-1.0, checks=Checks(5))._replicas_in_time() == 0
