"""A few stages of Megatron answer for a pipeline whose stages between the ends are alike, and for no other."""

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
    folder: Path,
    overrides: tuple[str, ...] = (),
    config: dict[str, Any] | None = None,
    world_size: int = 64,
    **fields: Any,
) -> tuple[FrameworkRun, FrameworkRun | None]:
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **(config or {})}))
    fields = {"sequence": 4096, "global_batch": 256, **fields}
    plan = Plan(**fields)
    run = plan_run(str(path), plan, fields.keys(), world_size, "bf16", overrides)
    return run, run_of_few_stages(run, str(path), plan, world_size)


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
    ("config", "fields", "ends", "chunks"),
    [
        ({"num_hidden_layers": 36}, {"pipeline": 8}, (1, 1), "0:5,5:10,10:15,35:36"),
        (  # as DeepSeek-V3
            {"num_hidden_layers": 61, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1},
            {"pipeline": 16}, (1, 1), "0:4,4:8,8:12,60:61",
        ),
        (
            {"num_hidden_layers": 61, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1},
            {"pipeline": 8, "virtual": 2, "tensor": 2}, (1, 1), "0:4,4:8,8:12,28:32,32:36,36:40,40:44,60:61",
        ),
        (  # the third dense layer is on the second stage, the last expert layer on the last but one
            {"num_hidden_layers": 61, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1},
            {"pipeline": 16, "virtual": 2, "tensor": 2, "global_batch": 512}, (2, 2),
            "0:2,2:4,4:6,6:8,28:30,30:32,32:34,34:36,36:38,38:40,60:61,61:61",
        ),
        ({"layer_types": KINDS}, {"pipeline": 8}, (1, 1), "0:4,4:8,8:12,28:32"),
        ({"num_nextn_predict_layers": 1}, {"pipeline": 8}, (1, 1), "0:4,4:8,8:12,28:32"),
    ],
    ids=["uneven", "1F1B", "interleaved", "two at each end", "kinds in turn", "mtp"],
)  # fmt: skip
def test_stages_at_the_ends_have_the_layers_of_their_own(
    tmp_path: Path, config: dict[str, Any], fields: dict[str, Any], ends: tuple[int, int], chunks: str
) -> None:
    _, short = short_run(tmp_path, (), config, **fields)
    assert short is not None
    assert short.captured_ends == ends
    assert short.arguments[short.arguments.index("--chunks") + 1] == chunks
    assert f"model.pipeline_model_parallel_size={sum(ends) + 2}" in short.arguments


@pytest.mark.parametrize(
    ("overrides", "layers", "chunks"),
    [
        (("first=2", "last=6"), 32, "0:2,2:6,6:10,26:32"),
        (("last=4",), 32, "0:4,4:8,8:12,28:32"),
        (("embedding=true", "loss=true"), 30, "0:3,3:7,7:11,27:30"),
        (("loss=true",), 31, "0:4,4:8,8:12,28:31"),
    ],
    ids=str,
)
def test_stages_are_uneven_as_the_user_s_fields_say(
    tmp_path: Path, overrides: tuple[str, ...], layers: int, chunks: str
) -> None:
    names = {end: f"model.num_layers_in_{end}_pipeline_stage" for end in ("first", "last")}
    names |= {end: f"model.account_for_{end}_in_pipeline_split" for end in ("embedding", "loss")}
    fields = tuple(f"{names[end]}={value}" for end, _, value in (override.partition("=") for override in overrides))
    _, short = short_run(tmp_path, fields, {"num_hidden_layers": layers}, pipeline=8)
    assert short is not None
    assert short.arguments[short.arguments.index("--chunks") + 1] == chunks
    assert not {*fields} & {*short.arguments}


@pytest.mark.parametrize(
    ("layout", "layers", "predicted", "virtual", "ends", "chunks"),
    [
        ("Et*2|(tttt|)*6tttL", 29, 0, 1, (1, 1), "0:2,2:6,6:10,26:29"),
        ("Et*3,|(tt|)*6,ttmL", 17, 1, 1, (1, 1), "0:3,3:5,5:7,15:17"),
        (  # as published for DeepSeek-V3, for half as many stages
            "Et*3|(tt|)*13,m|L", 29, 1, 2, (1, 3),
            "0:3,3:5,5:7,11:13,13:15,15:17,17:19,19:21,21:23,27:29,29:29m,29:29",
        ),
    ],
    ids=["equal", "predicts with the loss", "predicts before"],
)  # fmt: skip
def test_stages_have_the_layers_of_the_user_s_layout(
    tmp_path: Path, layout: str, layers: int, predicted: int, virtual: int, ends: tuple[int, int], chunks: str
) -> None:
    field = f"model.pipeline_model_parallel_layout='{layout}'"
    config = {"num_hidden_layers": layers, "num_nextn_predict_layers": predicted}
    _, short = short_run(tmp_path, (field,), config, pipeline=8, virtual=virtual, global_batch=512)
    assert short is not None
    assert short.captured_ends == ends
    assert short.arguments[short.arguments.index("--chunks") + 1] == chunks
    assert field not in short.arguments


def test_an_odd_number_of_interleaved_stages_takes_one_more(tmp_path: Path) -> None:
    _, short = short_run(
        tmp_path, (), {"num_hidden_layers": 36}, pipeline=9, virtual=2, global_batch=288, world_size=72
    )
    assert short is not None
    assert (short.captured_stages, short.captured_ends, short.captured_micro_batches) == (5, (1, 2), 15)
    assert "model.num_layers=20" in short.arguments


@pytest.mark.parametrize(
    ("overrides", "config", "fields"),
    [
        ((), {}, {"pipeline": 4}),
        ((), {}, {"pipeline": 8, "virtual": 2, "global_batch": 64}),
        ((), {}, {"pipeline": 8, "global_batch": 16, "tensor": 2}),
        ((), {"layer_types": KINDS[:24], "num_hidden_layers": 24}, {"pipeline": 8}),
        ((), {"first_k_dense_replace": 24}, {"pipeline": 8}),
        ((), {"num_hidden_layers": 30, "first_k_dense_replace": 1}, {"pipeline": 8}),
        ((), {"use_sliding_window": True}, {"pipeline": 8}),
        (("model.num_layers_in_last_pipeline_stage=2",), {}, {"pipeline": 8}),
        (("model.num_layers_in_last_pipeline_stage=few",), {}, {"pipeline": 8}),
        (("model.account_for_loss_in_pipeline_split=true",), {}, {"pipeline": 8}),
        (("model.pipeline_model_parallel_layout=Et|t|L",), {}, {"pipeline": 8}),
        (("model.pipeline_model_parallel_layout=E(tttt|)*7ttmttL",), {"num_nextn_predict_layers": 1}, {"pipeline": 8}),
        (("model.pipeline_model_parallel_layout=E(tttt|)*7ttttL",), {"num_nextn_predict_layers": 1}, {"pipeline": 8}),
    ],
    ids=[
        "four", "few interleaved", "few micro-batches", "kinds out of step", "many dense", "counted ends", "window",
        "last stage", "no number", "loss", "layout", "layout that predicts between", "layout that does not predict",
    ],
)  # fmt: skip
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
