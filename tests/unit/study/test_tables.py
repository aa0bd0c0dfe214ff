"""The tables of presim's own pages about its accuracy."""

from __future__ import annotations

from presim_study.tables import in_short

ROW = {
    "id": "a", "framework": "f", "source": 'github:o/r:docs/x.md#"Table" row 3', "gpu": "H100", "step_time_s": "1",
    "predicted_step_time_s": "1.1", "low_step_time_s": "0.9", "high_step_time_s": "1.3", "error": "0.1",
    "memory_error": "", "outcome": "ok", "provenance": "analytic 100%", "reason": "", "tp": "8", "dp": "1",
}  # fmt: skip


def test_in_short_large_sources_have_a_line_and_the_others_one_together() -> None:
    few = [{**ROW, "source": f"github:small/{name}:x", "error": "0.3"} for name in "ab"]
    many = [{**ROW, "n_gpus": str(8 * n), "error": "0.1", "memory_error": "-0.02"} for n in range(1, 11)]
    assert in_short([*few, *many]).splitlines()[2:] == [
        "| r | 8 to 80 H100 | 10 | 10.0% | 100.0% | 100.0% | 10 | 2.0% |",
        "| others |  | 2 | 30.0% | 0.0% | 100.0% | 0 |  |",
        "| all |  | 12 | 10.0% | 83.3% | 100.0% | 10 | 2.0% |",
    ]


def test_in_short_noisy_tests_are_also_left_out() -> None:
    noisy = [{**ROW, "source": "github:NVIDIA/Megatron-LM:tests", "error": "-0.5"} for _ in range(10)]
    *_, all_of_them, the_others = in_short([*noisy, {**ROW, "error": "0.1"}]).splitlines()
    assert all_of_them.startswith("| all |  | 11 | 50.0% |")
    assert the_others.startswith("| all but Megatron-LM |  | 1 | 10.0% |")
