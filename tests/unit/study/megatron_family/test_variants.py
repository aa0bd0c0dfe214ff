"""Options of Megatron-LM that are no decoder's: Muon and squared ReLU take a recipe of their own."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.megatron_family import variants
from presim_study.planners import plan


@pytest.mark.parametrize(
    ("other", "sharding", "expected"),
    [
        ("swiglu=True", "ddp", ()),
        ("optimizer=adam", "distributed-optimizer", ()),
        ("optimizer=muon", "ddp", ("--muon", "whole")),
        ("optimizer=muon", "distributed-optimizer(ZeRO-1)", ("--muon", "by-layer")),
        ("optimizer=dist_muon;squared-relu=True", "ddp", ("--squared-relu", "--muon", "by-layer")),
    ],
)
def test_what_a_case_asks_for_is_an_argument(other: str, sharding: str, expected: tuple[str, ...]) -> None:
    assert variants.arguments(Case({"id": "x", "other": other, "sharding": sharding})) == expected


ROW = {
    "id": "m", "framework": "Megatron-LM", "model": "gpt", "gpu": "H100", "n_gpus": "8", "n_layers": "2",
    "hidden": "512", "n_heads": "8", "seq_len": "512", "micro_batch": "1", "global_batch": "8",
    "precision": "bf16", "act_ckpt": "none", "other": "optimizer=muon",
}  # fmt: skip


@pytest.mark.parametrize(("source", "own"), [("elsewhere", False), ("Megatron-LM:tests/functional_tests/x", True)])
def test_a_test_with_muon_takes_the_steps_of_the_tests(installed: set[str], source: str, own: bool) -> None:
    planned = plan(Case({**ROW, "source": source}))
    assert planned.recipe == "megatron_variants.py"
    assert ("--tests" in planned.args) == own


@pytest.mark.parametrize(("sharding", "ranks"), [("ddp", (0,)), ("distributed-optimizer(ZeRO-1)", (7,))])
def test_the_last_rank_runs_itself_where_each_keeps_other_layers_state(
    installed: set[str], sharding: str, ranks: tuple[int, ...]
) -> None:
    row = {**ROW, "sharding": sharding, "rank_or_stage": "last rank", "peak_allocated_gib": "1"}
    planned = plan(Case(row))
    assert planned.ranks == ranks
    assert "--distributed-optimizer" not in planned.args
