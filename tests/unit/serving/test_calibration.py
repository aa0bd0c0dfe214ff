"""Calibrating: a benchmark of a machine that is slower than predicted is met, at its own load and at others."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from presim.cli.calibrate import command
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving import calibrate
from presim.serving.answer.metrics import bench
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate_fleet import simulate
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps import overheads
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.times import PricedEngine, build
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from presim.studies.validation import serving, serving_errors, serving_rows


def engine(over: Overheads | None = None) -> PricedEngine:
    return build(find("llama3-8b"), ServingPlan(), choose_cluster(gpu="h100-sxm", world_size=1), over)


def measured(over: Overheads, rate: float, *, each: bool) -> dict[str, object]:
    load = generate(WorkloadRecipe(80, Lengths(400, 0.3), Lengths(40), rate=rate, seed=5))
    found = bench(simulate(load, Deployment(engine(over)).fleet()), per_request=each)
    return {**found, "request_rate": rate, "max_concurrency": None}


def test_a_slower_machine_is_recognised_and_other_loads_are_met() -> None:
    """Its steps are 1.3 times as long and its front end takes 60 ms."""
    slow = dataclasses.replace(Overheads(), step_scale=1.3, input_us=60_000.0)
    found = calibrate.calibrate(Deployment(engine()), measured(slow, 10, each=True))
    assert found.overheads.step_scale == pytest.approx(1.3, rel=0.02)
    assert found.overheads.input_us == pytest.approx(60_000, rel=0.1)
    other = measured(slow, 30, each=True)
    load = calibrate.load_of(other)
    before, after = (bench(simulate(load, Deployment(engine(o)).fleet())) for o in (Overheads(), found.overheads))
    for key in ("mean_tpot_ms", "mean_ttft_ms"):
        truth = float(str(other[key]))
        assert abs(math.log(after[key] / truth)) < 0.5 * abs(math.log(before[key] / truth))


def test_the_verb_reads_a_result_and_writes_overheads(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(measured(Overheads(step_scale=0.9), 10, each=False)))
    words = ["serving", "llama3-8b", "--gpu", "h100-sxm", "--from", str(tmp_path / "result.json")]
    done = CliRunner().invoke(command, [*words, "--out", str(tmp_path / "o.json")])
    assert done.exit_code == 0, done.output
    assert overheads.read(tmp_path / "o.json").step_scale < 1
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="has no completed"):
        calibrate.read_result(tmp_path / "other.json")


def test_a_benchmark_of_another_machine_is_refused() -> None:
    with pytest.raises(InputError, match="differs by more than a factor of 8"):
        calibrate.calibrate(Deployment(engine()), {**measured(Overheads(), 10, each=False), "mean_tpot_ms": 500.0})


ROW = {
    "id": "a",
    "model": "llama3-8b",
    "gpu": "H100 SXM 80GB",
    "isl": "512",
    "osl": "32",
    "concurrency": "4",
    "tp": "1",
}


def test_published_runs_are_held_against_predictions(tmp_path: Path) -> None:
    rows = [
        {**ROW, "ttft_mean_ms": "60", "tpot_mean_ms": "8", "confidence": "complete"},
        {**ROW, "model": "nobody", "confidence": "complete"},
    ]
    found = serving.predict(rows)
    assert (
        float(found[0]["predicted_tpot_low"])
        < float(found[0]["predicted_tpot"])
        < float(found[0]["predicted_tpot_high"])
    )
    assert found[1]["reason"].startswith("unknown model 'nobody'")
    assert "| all complete | tpot | 1 |" in serving_errors.report(found)
    serving_errors.write(found, tmp_path / "out.csv")
    assert [row["id"] for row in serving.read(tmp_path / "out.csv")] == ["a", "a"]


def test_a_row_that_fails_keeps_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether presim refuses it, serves none of its requests, or has a bug."""
    rows = [ROW, {**ROW, "concurrency": "2", "id": "faulty"}, {**ROW, "concurrency": "8"}]
    predict_row = serving.predict_row

    def fails(row: serving.Row) -> dict[str, float]:
        return {"predicted_tpot": 1 / 0} if row["id"] == "faulty" else predict_row(row)

    monkeypatch.setattr(serving, "predict_row", fails)
    first, faulty, last = serving.predict(rows)
    assert float(first["predicted_tpot"]) <= float(last["predicted_tpot"])
    assert faulty["reason"].startswith("internal error of presim: ZeroDivisionError: division by zero (test_calibra")


def test_engines_have_the_defaults_of_their_version_and_of_the_benchmark_s_scripts() -> None:
    """vLLM schedules asynchronously by default since 0.14, and InferenceMAX asked for it before."""
    row = {"framework": "vllm", "framework_version": "0.12.0", "model": "Qwen/Qwen3-32B", "gpu": "H100 SXM 80GB"}
    row |= {"isl": "1024", "osl": "1024", "concurrency": "8", "tp": "2", "gemm_quant": "bf16"}
    asynchronous = {
        name: serving_rows._plan({**row, **changes}, "", 8).async_scheduling
        for name, changes in {
            "early": {},
            "later": {"framework_version": "0.14.1"},
            "of InferenceMAX": {"note": "db-dump/2026-04-27; config_id=1"},
            "TensorRT-LLM": {"framework": "trtllm", "framework_version": "0.8.1"},
        }.items()
    }
    assert asynchronous == {"early": False, "later": True, "of InferenceMAX": True, "TensorRT-LLM": True}
    sglang = {
        **row,
        "framework": "sglang",
        "model": "deepseek-ai/DeepSeek-V3",
        "gpu": "B200",
        "note": "db-dump/2026-04-27",
        "gemm_quant": "nvfp4",
    }
    assert serving_rows._plan(sglang, "", 8).max_num_batched_tokens == 16384
    assert serving_rows._plan({**sglang, "note": ""}, "", 8).max_num_batched_tokens == 8192
