"""Two numbers of Megatron's layers answer for a model of equal layers on one stage, and for no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from presim.composition.frameworks import megatron
from presim.composition.frameworks.fewer_layers import runs_of_few_layers
from presim.composition.frameworks.megatron import FrameworkRun, plan_run
from presim.composition.plan import Plan

VERSIONS = {"megatron-bridge": "0.3.1", "megatron-core": "0.16.1", "transformer_engine": "2.20.2"}
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 96, "num_attention_heads": 8, "vocab_size": 32000,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megatron.metadata, "version", VERSIONS.__getitem__)


def few_layers(
    folder: Path, overrides: tuple[str, ...] = (), config: dict[str, Any] | None = None, **fields: Any
) -> tuple[FrameworkRun, ...]:
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **(config or {})}))
    plan = Plan(sequence=4096, global_batch=256, **fields)
    run = plan_run(str(path), plan, ("sequence", "global_batch", *fields), 64, "bf16", overrides)
    return runs_of_few_layers(run, str(path), plan)


def test_runs_differ_in_the_number_of_layers_alone(tmp_path: Path) -> None:
    smaller, larger = few_layers(tmp_path, tensor=8)
    assert set(smaller.arguments) ^ set(larger.arguments) == {"model.num_layers=5", "model.num_layers=7"}
    assert smaller.arguments[0].endswith("config.json")
    assert smaller.progress_text == "capturing 5 of 96 layers and 4 of 32 micro-batches"


@pytest.mark.parametrize(
    ("overrides", "config", "fields"),
    [
        ((), {}, {"pipeline": 2}),
        ((), {"num_hidden_layers": 95}, {}),
        ((), {"layer_types": ["full_attention", "sliding_attention"] * 48}, {}),
        (("model.num_layers_in_first_pipeline_stage=3",), {}, {}),
        (("model.cuda_graph_impl=local",), {}, {}),
    ],
)
def test_other_runs_have_all_layers(
    tmp_path: Path, overrides: tuple[str, ...], config: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert few_layers(tmp_path, overrides, config, **fields) == ()
