"""Four stages of Megatron answer for a pipeline of equal stages, and for no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from presim.composition.frameworks import megatron
from presim.composition.frameworks.fewer_stages import run_of_few_stages
from presim.composition.frameworks.megatron import FrameworkRun, plan_run
from presim.composition.plan import Plan
from presim.hardware import choose_cluster
from presim.verbs.framework_captures import with_fewer_stages

VERSIONS = {"megatron-bridge": "0.3.1", "megatron-core": "0.16.1", "transformer_engine": "2.20.2"}
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 32, "num_attention_heads": 8, "vocab_size": 32000,
}  # fmt: skip
KINDS = ["full_attention", "sliding_attention"] * 16


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megatron.metadata, "version", VERSIONS.__getitem__)


def short_run(
    folder: Path, overrides: tuple[str, ...] = (), config: dict[str, Any] | None = None, **fields: Any
) -> tuple[FrameworkRun, FrameworkRun | None]:
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **(config or {})}))
    fields = {"sequence": 4096, "global_batch": 256, **fields}
    plan = Plan(**fields)
    run = plan_run(str(path), plan, fields.keys(), 64, "bf16", overrides)
    return run, run_of_few_stages(run, str(path), plan, 64)


def test_a_short_run_has_four_stages_with_the_layers_of_each(tmp_path: Path) -> None:
    run, short = short_run(tmp_path, tensor=2, pipeline=8)
    assert short is not None
    added = {"model.pipeline_model_parallel_size=4", "model.num_layers=16", "train.global_batch_size=36"}
    assert added <= set(short.arguments)
    assert "model.pipeline_model_parallel_size=8" not in short.arguments
    assert [sum(argument.startswith("train.global_batch_size=") for argument in short.arguments)] == [1]
    assert (short.captured_micro_batches, short.step_micro_batches) == (9, run.step_micro_batches)
    assert short.progress_text == "capturing 9 of 64 micro-batches of 4 stages"


def test_a_short_run_of_chunks_has_three_groups_of_micro_batches(tmp_path: Path) -> None:
    """The first step has two; the embedding and the output layer count as layers, as in the whole model."""
    _, short = short_run(tmp_path, (), {"num_hidden_layers": 30}, tensor=2, pipeline=8, virtual=2, global_batch=128)
    assert short is not None
    added = {"model.pipeline_model_parallel_size=4", "model.num_layers=14", "train.global_batch_size=48"}
    assert {*added, "train.rampup_batch_size=[32,16,32]"} <= set(short.arguments)
    assert (short.captured_stages, short.captured_micro_batches) == (4, 12)


@pytest.mark.parametrize(
    ("overrides", "config", "fields"),
    [
        ((), {}, {"pipeline": 4}),
        ((), {}, {"pipeline": 8, "virtual": 2, "global_batch": 64}),
        ((), {}, {"pipeline": 8, "global_batch": 16, "tensor": 2}),
        ((), {"num_hidden_layers": 36}, {"pipeline": 8}),
        ((), {"layer_types": KINDS}, {"pipeline": 8}),
        ((), {"num_nextn_predict_layers": 1}, {"pipeline": 8}),
        (("model.num_layers_in_last_pipeline_stage=2",), {}, {"pipeline": 8}),
        (("model.account_for_loss_in_pipeline_split=true",), {}, {"pipeline": 8}),
    ],
    ids=["four", "few interleaved", "few micro-batches", "uneven", "kinds", "mtp", "last stage", "loss"],
)
def test_other_pipelines_are_captured_in_full(
    tmp_path: Path, overrides: tuple[str, ...], config: dict[str, Any], fields: dict[str, Any]
) -> None:
    _, short = short_run(tmp_path, overrides, config, **fields)
    assert short is None


@pytest.mark.parametrize(
    ("world_size", "stages", "expected"), [(64, 8, (4, 8)), (16384, 16, (512, 8)), (8, 8, (1, 4)), (24, 8, None)]
)
def test_four_stages_take_equal_nodes(world_size: int, stages: int, expected: tuple[int, int] | None) -> None:
    cluster = choose_cluster(gpu="h100-sxm", nodes=world_size // 8, gpus_per_node=8)
    fewer = with_fewer_stages(cluster, stages, 4)
    assert (None if fewer is None else (fewer.nodes, fewer.gpus_per_node)) == expected
