"""Intervals of a run's figures."""

from __future__ import annotations

from presim.hardware import constants as calibration
from presim.serving.answer.intervals import intervals


def test_ends_are_of_both_runs_and_the_first_token_reaches_further() -> None:
    middle = {"mean_ttft_ms": 10.0, "mean_tpot_ms": 2.0, "output_throughput": 5.0, "completed": True, "x": None}
    low, high = {**middle, "output_throughput": 6.0}, {**middle, "mean_tpot_ms": 3.0, "output_throughput": 4.0}
    for kernels, name in (("vllm", "serving.ttft_beyond_vllm"), ("sglang", "serving.ttft_beyond")):
        ends = intervals(middle, low, high, kernels, calibrated=False)  # type: ignore[arg-type]
        beyond = calibration.value(name)
        assert ends == {"mean_ttft_ms": (10, 10 * beyond), "mean_tpot_ms": (2, 3), "output_throughput": (4, 6)}
    assert intervals(middle, low, high, calibrated=True)["mean_ttft_ms"] == (10, 10)


def test_prefill_apart_may_be_faster_and_its_first_token_later() -> None:
    """The times between tokens are those of the engines that decode."""
    middle = {"mean_ttft_ms": 10.0, "mean_tpot_ms": 2.0, "median_ttft_ms": 4.0}
    fast = {"mean_ttft_ms": 3.0, "mean_tpot_ms": 9.0, "median_ttft_ms": None}
    ends = intervals(middle, middle, middle, calibrated=False, fast_prefill=fast)
    beyond = calibration.value("serving.ttft_beyond_apart")
    assert ends == {"mean_ttft_ms": (3, 10 * beyond), "mean_tpot_ms": (2, 2), "median_ttft_ms": (4, 4 * beyond)}
    assert intervals(middle, middle, middle, calibrated=True, fast_prefill=fast)["mean_ttft_ms"] == (10, 10)
