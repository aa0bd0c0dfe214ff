"""Figures by the definitions of ``vllm bench serve``; predictions with intervals, knees and overload."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from presim.cli.serve import command
from presim.errors import InputError
from presim.serving.answer.metrics import Slo, bench, good_requests, slo_of
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.workloads.workload import make

STEP = 10_000_000


def served() -> Served:
    limits = Limits(num_gpu_blocks=500, max_num_batched_tokens=64, max_model_len=1000)
    workload = make("some", np.array([0, 0, 5 * STEP]), np.array([10, 100, 10]), np.array([1, 20, 5]))
    return simulate(workload, Fleet((Replica(limits, constant_times(STEP, limits)),)), compiled=False)


def test_figures_are_those_of_their_definitions() -> None:
    """Held against plain sums over each request."""
    run = served()
    found = bench(run, Slo(ttft_ms=25.0))
    ttft, latency = (run.first - run.sent) / 1e6, (run.last - run.sent) / 1e6
    output = run.workload.output
    tpot = [(one - two) / (count - 1) for one, two, count in zip(latency, ttft, output) if count > 1]
    assert found["mean_ttft_ms"] == pytest.approx(ttft.mean())
    assert found["p99_ttft_ms"] == pytest.approx(np.percentile(ttft, 99))
    assert found["mean_tpot_ms"] == pytest.approx(np.mean(tpot))
    assert found["median_e2el_ms"] == pytest.approx(np.median(latency))
    gaps = np.repeat(run.gaps[:, 0], run.gaps[:, 1]) / 1e6
    assert found["mean_itl_ms"] == pytest.approx(gaps.mean())
    assert found["p90_itl_ms"] == pytest.approx(np.percentile(gaps, 90))
    assert found["std_itl_ms"] == pytest.approx(gaps.std())
    duration = (run.last.max() - run.sent.min()) / 1e9
    assert found["output_throughput"] == pytest.approx(output.sum() / duration)
    assert found["request_goodput"] == pytest.approx((ttft <= 25).sum() / duration)
    assert good_requests(run, Slo(e2el_ms=1.0)).sum() == 0


def test_slos_are_read_as_vllm_reads_them() -> None:
    assert slo_of(["ttft:500", "tpot:50"]) == Slo(500.0, 50.0)
    assert slo_of(["ttft:500@p90", "tpot:50@mean"], 95.0).statistics == {"ttft": "p90", "tpot": "mean"}
    assert slo_of(["ttft:500", "tpot:50@mean"], 95.0).text == "p95 TTFT <= 500 ms, mean TPOT <= 50 ms"


@pytest.mark.parametrize("limit", ["", ":", ":nan", ":inf", ":-1", ":5@", ":5@99", ":5@p100", ":5@p0", ":5@pnan"])
def test_other_words_are_no_slo(limit: str) -> None:
    with pytest.raises(InputError, match="an SLO is ttft:MS"):
        slo_of([f"ttft{limit}"])


def test_a_limit_is_of_its_own_statistic() -> None:
    latencies = {"ttft": np.arange(101.0), "tpot": np.array([1.0, 1.0, 10.0])}
    assert slo_of(["ttft:1@p90", "tpot:1@mean"]).figures_ms(latencies) == {"ttft": 90.0, "tpot": 4.0}


SMALL = ("llama3-8b", "--gpu", "h100-sxm", "--requests", "60", "--input", "300", "--output", "20", "--json", "-")


def serve(*words: str) -> Result:
    return CliRunner().invoke(command, [*SMALL, *words])


def test_the_verb_writes_everything(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("page.html", "steps.pftrace", "load.jsonl")}
    more = ("--html", str(files["page.html"]), "--perfetto", str(files["steps.pftrace"]))
    first = serve("--rate", "20", "--slo", "ttft:200", *more, "--save-workload", str(files["load.jsonl"]))
    said = json.loads(first.output)
    assert said["figures"]["completed"] == 60
    low, high = said["intervals_80"]["mean_tpot_ms"]
    assert low < said["figures"]["mean_tpot_ms"] < high
    assert 0 < said["largest_request_rate_within_slo"] <= said["sustainable_request_rate"]
    assert not said["overloaded"]
    page = files["page.html"].read_text()
    assert page.count("<svg") == 4  # batch and queue, KV cache, step time, requests
    assert "prefers-color-scheme: dark" in page
    assert not re.search('(fill|stroke)[:=]"?#', page.split("</style>")[1])  # colours follow the theme
    assert said["not_modelled"] == []  # of a dense model
    assert files["steps.pftrace"].stat().st_size > 1000
    again = json.loads(serve("--workload", str(files["load.jsonl"]), "--slo", "ttft:200").output)
    assert again["figures"] == said["figures"]


def test_limits_are_those_of_the_model() -> None:
    """A mixture of experts names the load that it assumes, and a sliding window how prefixes are found."""
    words = ["--gpu", "h100-sxm", "--requests", "5", "--input", "30", "--output", "4", "--json", "-"]
    found = json.loads(CliRunner().invoke(command, ["qwen3-30b-a3b", *words]).output)
    load, graphs = found["not_modelled"]
    assert load == (
        "The load of experts is assumed to follow a power law with exponent 1.01; the fullest of N ranks with whole "
        "experts has N ** 0.2 times the mean load."
    )
    assert graphs.startswith("vLLM takes an estimate of its CUDA graphs off the cache, ")
    found = json.loads(CliRunner().invoke(command, ["gpt-oss-20b", *words]).output)
    assert found["not_modelled"][0].startswith("Prefixes are found even where a window")


def test_overload_is_said_with_the_load_that_is_sustainable() -> None:
    said = json.loads(serve("--rate", "4000", "--output", "200").output)
    assert said["overloaded"]
    assert said["notes"][0].startswith("Overloaded: ")
    assert "are sustainable" in said["notes"][0]


def test_an_slo_that_no_rate_meets_is_said_with_the_nearest() -> None:
    said = json.loads(serve("--rate", "5", "--slo", "tpot:1").output)
    assert said["largest_request_rate_within_slo"] is None
    assert "No rate meets p99 TPOT <= 1 ms" in said["notes"][0]


def test_disaggregated_engines_hand_over() -> None:
    said = json.loads(
        serve("--rate", "5", "--prefill-replicas", "1", "--replicas", "2", "--router", "least-loaded").output
    )
    assert said["figures"]["completed"] == 60
    assert said["deployment"]["gpus"] == 3
