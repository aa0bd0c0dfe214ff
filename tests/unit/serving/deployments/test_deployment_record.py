"""A saved answer in lines, also one of a presim that simulated so many requests in flight."""

from __future__ import annotations

from typing import Any

import msgspec

from presim.result.deployments import DeployResult
from presim.serving.deployments.deployment_page import render
from presim.serving.deployments.deployment_record import encode, table, upgrade_1
from presim.serving.deployments.report_lines import text

ESTIMATE = {"deployment": "1 x h100-sxm TP1 bf16", "gpus": 1, "ttft_ms": 20.0, "tpot_ms": 8.0,
            "tokens_per_s_per_gpu": 100.0, "tokens_per_s_per_user": 125.0}  # fmt: skip
FIGURES = {"mean_ttft_ms": 31.0, "p99_ttft_ms": 42.0, "mean_tpot_ms": 9.0, "output_throughput": 105.0}


def answer(**fields: Any) -> DeployResult:
    """An answer as schema 1 had it, read by this version."""
    common = {"slo": {"tpot": 20.0}, "judged": 3, "pareto": [ESTIMATE], "refused": {}, "not_modelled": []}
    return msgspec.convert(
        upgrade_1({**common, "best": ESTIMATE, "nearest": None, "simulated": [], **fields}), DeployResult
    )


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
    assert lines[0].startswith("Best: 1 x h100-sxm TP1 bf16, 1 GPU; serves 2 requests/s, 100 tokens/s/GPU, with p99 ")
    assert lines[1].startswith("Simulated request by request, 3 of 7 plans")
    assert lines[3] == "2 of them do not serve the load of the best of their kind, e.g."
    assert "p99 TTFT 42 ms, mean TPOT 9 ms, misses the SLO  2P1D" in lines[4]
    assert "no steady state, misses the SLO" in lines[5]


CONFIRMED = {
    "rate_asked": 5.0, "units": 3, "spare_units": 1, "draws": 5, "rate_range": [1.8, 2.3], "queue_rate": 2.4,
    "costs": {"hour": 7.5, "million_output_tokens": 0.4, "watts": 900.0}, "ranges": {"p99_ttft_ms": [40.0, 44.0]},
    "next_best": {**ESTIMATE, "deployment": "4 x h100-sxm TP2", "gpus": 4, "request_rate": 6.4}, "next_costs": None,
    "ranges_overlap": True, "losses": [{"plan": "TP2", "share": 0.2}],
    "load_curve": [{"request_rate": rate, "p99_ttft_ms": 40 * rate} for rate in (1.0, 2.0)],
}  # fmt: skip


def test_the_answer_says_what_it_costs_and_how_sure_it_is() -> None:
    best = {**ESTIMATE, **FIGURES, "gpus": 3, "request_rate": 6.0, "verdict": "meets", "meets_slo": True}
    content = answer(best=best, simulated=[best], slo_statistics={"ttft": "p99"}, plans=7, **CONFIRMED)
    lines = text(content).split("\n")
    assert lines[0].endswith(
        "; costs 7.5 an hour, 0.4 per million output tokens; next best 4 x h100-sxm TP2, 4 GPUs: 25% less per GPU"
    )
    assert lines[1] == "Others serve less per GPU: TP2 20%."
    assert lines[2] == (
        "Over 5 draws of the load p99 TTFT is 40 to 44 ms. If steps take 10 % more or less time, it serves 1.8 to 2.3 "
        "requests/s. Its queues grow without end from 2.4 requests/s on."
    )
    assert lines[3].endswith("that serves more: measure both.")
    assert lines[4] == "5 requests/s are 83% of that; with one engine more, 4 GPUs, one may fail."


def test_large_numbers_are_written_out() -> None:
    """A fleet serves thousands of requests a second, and a long answer takes minutes: no powers of ten."""
    figures = {**FIGURES, "p99_e2el_ms": 83_456.7, "request_rate": 4321.5, "verdict": "meets", "meets_slo": True}
    best = {**ESTIMATE, **figures, "gpus": 3}
    costs = {"hour": 12_345.6, "million_output_tokens": 0.4, "watts": 900.0}
    confirmed = {**CONFIRMED, "costs": costs, "queue_rate": 4567.8, "ranges": {"p99_e2el_ms": [81_234.5, 84_321.0]}}
    content = answer(best=best, simulated=[best], slo_statistics={"e2el": "p99"}, plans=7, **confirmed)
    lines = text(content)
    assert "serves 4,322 requests/s" in lines
    assert "p99 E2EL 83,457 ms" in lines
    assert "p99 E2EL is 81,234 to 84,321 ms" in lines
    assert "grow without end from 4,568 requests/s on" in lines
    assert "costs 12,346 an hour" in lines
    assert "e+" not in lines


def test_the_page_shows_the_front_and_the_load() -> None:
    """Also of a file, whose keys are sorted, and of an answer without a best."""
    best = {**ESTIMATE, **FIGURES, "request_rate": 2.0, "verdict": "meets", "meets_slo": True}
    slo = {"ttft": 50.0, "tpot": 20.0}
    content = answer(best=best, simulated=[best], slo=slo, slo_statistics={"ttft": "p99"}, plans=7, **CONFIRMED)
    page = render(content)
    assert page.count("<svg") == 2
    for words in ("p99 TTFT of the best over its load", "queues grow", "Tokens/s per GPU over tokens/s of a user"):
        assert words in page
    assert page.count("<circle") == 4  # two plans, and their marks beside two names
    assert page.count("tokens/s of a user, TTFT") == 2  # under a pointer
    speeds = "100 tokens/s/GPU, 125 tokens/s of a user, TTFT 20 ms"
    assert f"<title>1 x h100-sxm TP1 bf16: {speeds}, simulated</title>" in page
    assert page == render(msgspec.json.decode(encode(content), type=DeployResult))
    assert "No deployment serves this" in render(answer(best=None))


def test_the_table_has_a_row_for_each_simulated_plan() -> None:
    rows = [{**ESTIMATE, "verdict": "meets"}, {**ESTIMATE, "verdict": "misses", "reason": "no memory"}]
    lines = table(answer(simulated=rows)).decode().splitlines()
    column = lines[0].split(",").index("verdict")
    assert lines[0].startswith("deployment,gpus,gpu,")
    assert [line.split(",")[column] for line in lines[1:]] == ["meets", "misses"]


def test_a_plan_without_room_of_an_earlier_version_is_read() -> None:
    """It stood as the nearest plan, without figures."""
    lacking = {"deployment": "1 x l40s as TP1", "gpu": "l40s", "gpus": 1, "needed_bytes": 3, "missing_bytes": 2}
    content = answer(best=None, nearest=lacking, shortfall="No plan holds it.", judged=0)
    assert content.without_room is not None
    assert (content.nearest, content.without_room.missing_bytes) == (None, 2)
    assert text(content).startswith("No plan holds it.\n")
