"""The summary: its statistics, and that misses are shown."""

from __future__ import annotations

import pytest

from presim.studies.validation.error_summary import quantile, summary

ROW = {
    "id": "a", "framework": "f", "source": 'github:o/r:docs/x.md#"Table" row 3', "gpu": "H100", "step_time_s": "1",
    "predicted_step_time_s": "1.1", "low_step_time_s": "0.9", "high_step_time_s": "1.3", "error": "0.1",
    "memory_error": "", "outcome": "ok", "provenance": "analytic 100%", "reason": "", "tp": "8", "dp": "1",
}  # fmt: skip


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.9, 4.0), (0.25, 1.0)])
def test_quantiles_are_values_that_occurred(share: float, value: float) -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], share) == value


def test_misses_and_reasons_are_shown() -> None:
    miss = {**ROW, "id": "bad", "error": "1.5", "predicted_step_time_s": "2.5"}
    none = {**ROW, "id": "none", "error": "", "outcome": "", "reason": "12 GPUs do not fill nodes of 8"}
    text = summary([ROW, miss, none])
    assert "3 cases, 2 built, 0 of them out of memory" in text
    assert "| bad |" in text
    assert "| 1 | N GPUs do not fill nodes of N |" in text
    assert "| github:o/r | 2 | 10.0% | 150.0% | +10.0% | 50.0% | 100.0% | 0 |" in text


def test_tables_have_their_pictures() -> None:
    text = summary([{**ROW, "n_gpus": "8"}], {"number of GPUs": "sizes.svg"})
    headed = "## By number of GPUs\n\n![Predicted over measured, by number of GPUs](sizes.svg)\n\n| number of GPUs |"
    assert headed in text
    assert text.count("![") == 1
    assert "| 2 to 8 | 1 |" in text


def test_misfits_are_counted_and_those_that_were_measured() -> None:
    ran = {**ROW, "outcome": "out_of_memory"}
    neither = {**ran, "id": "neither", "step_time_s": "", "error": "", "peak_mem_gib": ""}
    expected = "3 cases, 3 built, 2 of them out of memory in the emulation (1 that were measured all the same)."
    assert expected in summary([ROW, ran, neither])


def test_models_have_a_line_for_each_gpu_and_number_format_without_sources_of_tests() -> None:
    runs = [
        {**ROW, "model": "8B", "n_gpus": str(gpus), "precision": "FP8 (current scaling)", "error": error}
        for gpus, error in ((8, "-0.04"), (64, "0.02"), (16, "0.01"))
    ]
    noisy = {**ROW, "model": "tiny", "source": "github:NVIDIA/Megatron-LM:tests"}
    lines = (
        summary([*runs, noisy], tests=("Megatron-LM",))
        .partition("## By model\n\n")[2]
        .partition("\n\n")[0]
        .splitlines()[2:]
    )
    assert lines == ["| r | 8B | 8 to 64 H100 | FP8 | 3 | +1.0% | -4.0% to +2.0% |"]
