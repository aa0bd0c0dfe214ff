"""A saved answer in lines, also one of a presim that simulated so many requests in flight."""

from __future__ import annotations

from typing import Any

from presim.serving.deployments.record import text

ESTIMATE = {"deployment": "1 x h100-sxm TP1 bf16", "gpus": 1, "ttft_ms": 20.0, "tpot_ms": 8.0,
            "tokens_per_s_per_gpu": 100.0, "tokens_per_s_per_user": 125.0}  # fmt: skip
FIGURES = {"mean_ttft_ms": 31.0, "p99_ttft_ms": 42.0, "mean_tpot_ms": 9.0, "output_throughput": 105.0}


def answer(**fields: Any) -> dict[str, Any]:
    common = {"slo": {"tpot": 20.0}, "judged": 3, "pareto": [ESTIMATE], "refused": {}, "not_modelled": []}
    return {**common, "best": ESTIMATE, "nearest": None, "simulated": [], **fields}


def test_answers_of_earlier_versions_are_read() -> None:
    lines = text(answer(simulated=[{**ESTIMATE, **FIGURES, "meets_slo": True}, {**ESTIMATE, "reason": "no memory"}]))
    assert "     105 tokens/s  mean TTFT 31 ms, mean TPOT 9 ms  1 x h100-sxm TP1 bf16" in lines
    assert "  not simulated: 1 x h100-sxm TP1 bf16: no memory" in lines
    missed = text(answer(best=None, nearest=ESTIMATE))
    assert missed.startswith("None meets the SLO; the nearest: 1 x h100-sxm TP1 bf16\n")


def test_the_best_is_the_first_line() -> None:
    statistics = {"ttft": "p99"}
    best = {**ESTIMATE, **FIGURES, "request_rate": 2.0, "verdict": "meets", "meets_slo": True}
    fewer = {**best, "verdict": "fewer", "meets_slo": False, "deployment": "2P1D"}
    overloaded = {**ESTIMATE, "request_rate": 2.0, "verdict": "fewer", "meets_slo": False, "reason": "no steady state"}
    lines = text(answer(best=best, simulated=[best, fewer, overloaded], slo_statistics=statistics, plans=7)).split("\n")
    assert lines[0].startswith("Best: 1 x h100-sxm TP1 bf16, 1 GPUs; serves 2 requests/s, 100 tokens/s/GPU, with p99 ")
    assert lines[1].startswith("Simulated request by request, 3 of 7 plans")
    assert lines[3] == "2 of them do not serve the load of the best of their kind, e.g."
    assert "p99 TTFT 42 ms, mean TPOT 9 ms, misses the SLO  2P1D" in lines[4]
    assert "no steady state, misses the SLO" in lines[5]
