"""Megatron-LM's runs of 2021: what its own scripts say besides the table."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.megatron_family.selene import completed
from presim_study.planners import plan
from support.plans import refusal

ROW = {
    "id": "s", "framework": "Megatron-LM (SC21)", "model": "GPT-39B", "gpu": "A100 SXM 80GB (Selene)",
    "n_layers": "48", "hidden": "8192", "ffn": "32768", "n_gpus": "512", "precision": "fp16/mixed (half precision)",
    "seq_len": "2048", "global_batch": "1536", "tp": "8", "pp": "2", "dp": "32", "sharding": "DDP",
    "act_ckpt": "full (paper FLOPs formula counts recompute)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "stages", "micro", "virtual"),
    [
        ("GPT-1.7B", 1, "16", ""),
        ("GPT-18B", 1, "8", ""),
        ("GPT 18.4B", 1, "8", ""),
        ("GPT-39B", 2, "4", "1"),
        ("GPT-76.1B", 4, "2", "3"),
        ("GPT-145.6B", 8, "2", "2"),
        ("GPT-310B", 16, "1", "2"),
        ("GPT-530B", 35, "1", "3"),
        ("GPT-1T", 64, "1", "1"),
    ],
)
def test_a_size_of_the_table_has_the_micro_batch_of_its_script(
    model: str, stages: int, micro: str, virtual: str
) -> None:
    case = completed(Case({**ROW, "model": model, "pp": str(stages)}))
    assert (case.text("micro_batch"), case.text("vp")) == (micro, virtual)


def test_what_a_row_says_itself_counts_and_other_sources_are_left_alone() -> None:
    assert completed(Case({**ROW, "micro_batch": "2"})).text("micro_batch") == "2"
    elsewhere = Case({**ROW, "framework": "Megatron-Core r0.8.0"})
    assert completed(elsewhere) is elsewhere


def test_such_a_run_is_planned_with_heads_that_its_table_leaves_out(installed: set[str]) -> None:
    words = " ".join(plan(Case(ROW)).args)
    assert "--heads 64" in words
    assert "--batch 4" in words
    assert "--checkpoint" in words
    assert refusal({**ROW, "framework": "Megatron-Core r0.8.0"}) == "micro_batch is empty"
