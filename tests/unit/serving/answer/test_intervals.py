"""Intervals of a run's figures."""

from __future__ import annotations

from presim import constants as calibration
from presim.serving.answer.intervals import intervals


def test_ends_are_of_both_runs_and_the_first_token_reaches_further() -> None:
    middle = {"mean_ttft_ms": 10.0, "mean_tpot_ms": 2.0, "output_throughput": 5.0, "completed": True, "x": None}
    low, high = {**middle, "output_throughput": 6.0}, {**middle, "mean_tpot_ms": 3.0, "output_throughput": 4.0}
    found = intervals(middle, low, high, calibrated=False)
    beyond = calibration.value("serving.ttft_beyond")
    assert found == {"mean_ttft_ms": (10, 10 * beyond), "mean_tpot_ms": (2, 3), "output_throughput": (4, 6)}
    assert intervals(middle, low, high, calibrated=True)["mean_ttft_ms"] == (10, 10)
