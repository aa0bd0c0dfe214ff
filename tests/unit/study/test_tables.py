"""The tables of presim's own pages about its accuracy."""

from __future__ import annotations

from presim_study.tables import in_short

ROW = {
    "id": "a", "framework": "f", "source": 'github:o/r:docs/x.md#"Table" row 3', "gpu": "H100", "step_time_s": "1",
    "predicted_step_time_s": "1.1", "low_step_time_s": "0.9", "high_step_time_s": "1.3", "error": "0.1",
    "memory_error": "", "outcome": "ok", "provenance": "analytic 100%", "reason": "", "tp": "8", "dp": "1",
}  # fmt: skip


def test_in_short_a_group_has_a_line_unless_it_has_no_figures() -> None:
    few = [{**ROW, "error": "0.3"}, {**ROW, "error": "", "memory_error": ""}]
    many = [{**ROW, "n_gpus": str(8 * n), "error": "0.1", "memory_error": "-0.02"} for n in range(1, 11)]
    none = [{**ROW, "error": ""}]
    assert in_short({"many": many, "few": few, "none": none, "all": [*many, *few]}).splitlines()[2:] == [
        "| many | 8 to 80 H100 | 10 | 10.0% | 100.0% | 100.0% | 10 | 2.0% |",
        "| few | H100 | 1 | 30.0% | 0.0% | 100.0% | 0 |  |",
        "| all | 8 to 80 H100 | 11 | 10.0% | 90.9% | 100.0% | 10 | 2.0% |",
    ]
