"""Options of InferenceMAX's scripts that published runs were started with."""

from __future__ import annotations

import pytest

from presim.studies.validation.inferencemax import SCRIPTS, is_of_inferencemax, options_of

_ROW = {
    "framework": "sglang",
    "model": "Qwen/Qwen3.5-397B-A17B",
    "gpu": "B300 SXM",
    "mode": "agg",
    "gemm_quant": "",
    "isl": "1024",
    "osl": "1024",
    "concurrency": "32",
    "note": "db-dump/2026-04-27; measured=2026-04-18T00:00:00.000Z",
}


@pytest.mark.parametrize(("concurrency", "steps"), [("8", 10), ("16", 30)])
def test_polls_less_often_with_many_requests(concurrency: str, steps: int) -> None:
    assert options_of({**_ROW, "concurrency": concurrency}, "sglang", 8)["scheduler_recv_interval"] == steps


def test_the_last_script_before_a_run_has_its_options() -> None:
    fp8 = {**_ROW, "gemm_quant": "fp8"}
    assert options_of(fp8, "sglang", 4)["max_num_batched_tokens"] == 16384
    older = {**fp8, "note": "source_file=2026-03-25.csv; measured=2026-04-03"}
    assert options_of(older, "sglang", 4)["max_num_batched_tokens"] == 32768


@pytest.mark.parametrize(
    "change",
    [
        {"note": "source_file=/home/somebody/runs.csv"},
        {"isl": "1000"},
        {"gpu": "H100 SXM 80GB"},
        {"model": "Qwen/Qwen3-32B"},
        {"mode": "disagg"},
    ],
)
def test_other_runs_have_no_options(change: dict[str, str]) -> None:
    assert options_of({**_ROW, **change}, "sglang", 8) == {}


def test_a_grace_host_is_not_taken_for_its_gpu() -> None:
    row = {**_ROW, "model": "deepseek-ai/DeepSeek-R1", "gpu": "GB200", "gemm_quant": "nvfp4"}
    assert is_of_inferencemax(row)
    assert options_of(row, "sglang", 4) == {}


def test_every_script_names_its_commit() -> None:
    assert all(len(script.source.split(" @ ")[1]) == 9 for script in SCRIPTS)
