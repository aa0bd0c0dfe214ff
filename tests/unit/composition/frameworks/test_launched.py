"""A plan becomes a job of torchtitan, accelerate or DeepSpeed, or a sentence says why it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from presim.composition.frameworks import launched
from presim.composition.frameworks.launched import LaunchedRun, launched_run, sizes_to_capture
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster

VERSIONS = dict.fromkeys(("torchtitan", "torchao", "transformers", "accelerate", "deepspeed"), "1.0")


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched.metadata, "version", VERSIONS.__getitem__)


def run_of(
    framework: str,
    *arguments: str,
    model: str = "llama3-8b",
    world_size: int = 64,
    precision: str = "bf16",
    layers: int | None = None,
    **fields: Any,
) -> LaunchedRun:
    fields = {"sequence": 4096, **fields}
    cluster = choose_cluster(gpu="h100-sxm", world_size=world_size)
    return launched_run(framework, model, Plan(**fields), fields, cluster, precision, arguments, layers=layers)


def test_a_step_has_as_few_micro_batches_as_repeat_and_the_launch_files_say_so() -> None:
    run = run_of("hf", global_batch=64 * 16)
    assert (run.captured_micro_batches, run.step_micro_batches) == (4, 16)
    assert run.command[run.command.index("--accumulate") + 1] == "4"
    pipeline = run_of("torchtitan", global_batch=32 * 32, pipeline=2)
    assert (pipeline.captured_micro_batches, pipeline.step_micro_batches) == (5, 32)


def test_few_layers_are_the_model_s_first_ones() -> None:
    run = run_of("hf", layers=5)
    assert json.loads(run.files["model/config.json"])["num_hidden_layers"] == 5
    assert (run.captured_layers, run.model_layers) == (5, 32)


def test_lists_by_layer_are_cut_with_the_layers(tmp_path: Path) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 8, "layer_types": ["full_attention"] * 8, "vocab_size": 10}
    (tmp_path / "config.json").write_text(json.dumps(config))
    run = run_of("hf", model=str(tmp_path / "config.json"), layers=5)
    assert len(json.loads(run.files["model/config.json"])["layer_types"]) == 5


@pytest.mark.parametrize(
    ("model", "fields", "sizes"),
    [("llama3-8b", {}, (5, 7)), ("llama3-1b", {}, ()), ("llama3-8b", {"pipeline": 2}, ())],
)
def test_two_sizes_answer_for_deep_models_without_a_pipeline(
    model: str, fields: dict[str, int], sizes: tuple[int, ...]
) -> None:
    plan = Plan(sequence=4096, **fields)
    assert sizes_to_capture(run_of("torchtitan", model=model, **fields), plan) == sizes


def test_arguments_reach_the_framework() -> None:
    run = run_of("deepspeed", "zero_optimization.stage=2", "zero_optimization.overlap_comm=false", data_style="zero1")
    assert json.loads(run.files["ds_config.json"])["zero_optimization"] == {"stage": 2, "overlap_comm": False}
    assert run_of("torchtitan", "--compile.enable").command[-1] == "--compile.enable"
    command = run_of("hf", "--fsdp_forward_prefetch", "true").command
    assert command.index("--fsdp_forward_prefetch") < command.index("train_accelerate.py")
    assert run_of("hf", "--sync_each_batch", "--lora_r", "8").command[-3:] == ("--sync_each_batch", "--lora_r", "8")


def test_a_configuration_of_deepspeed_s_is_taken_as_it_is_but_for_the_plan_s_sizes(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    settings = {
        "train_batch_size": "auto",
        "gradient_accumulation_steps": 3,
        "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
    }
    file.write_text(json.dumps({**settings, "wall_clock_breakdown": True}))
    merged = json.loads(run_of("deepspeed", str(file), data_style="zero1").files["ds_config.json"])
    assert (merged["gradient_accumulation_steps"], merged["train_batch_size"]) == (1, 64)
    assert merged["zero_optimization"] == {"stage": 2, "overlap_comm": True}
    assert merged["wall_clock_breakdown"] is True


def test_versions_and_differences_from_the_plan_are_said() -> None:
    run = run_of("torchtitan")
    assert run.notes[0].startswith("Captured from torchtitan's own trainer (torchtitan 1.0, torchao 1.0) in bf16")
    assert any("flex attention" in note for note in run.notes)


@pytest.mark.parametrize(
    ("model", "family", "experts"), [("qwen3-30b-a3b", "qwen3", 128), ("deepseek-v3", "deepseek_v3", 256)]
)
def test_torchtitan_s_own_models_are_found_by_their_sizes(model: str, family: str, experts: int) -> None:
    text = run_of("torchtitan", model=model, expert=8).files["plan_config.py"]
    assert f"'family': '{family}'" in text
    assert f"'n_experts': {experts}" in text
    assert "'expert_parallel_degree': 8" in text


@pytest.mark.parametrize("framework", ["hf", "deepspeed"])
def test_an_attention_backend_reaches_the_program(framework: str) -> None:
    command = run_of(framework, attention="flash").command
    assert command[command.index("--attention") + 1] == "flash"
    assert "--attention" not in run_of(framework).command


def test_fp8_has_torchao_s_recipes_in_torchtitan_too() -> None:
    for run in (run_of("torchtitan", precision="fp8-current"), run_of("torchtitan", passes=("fp8-tensor",))):
        assert "CONVERTERS = ['Float8LinearConverter tensorwise']" in run.files["plan_config.py"]


REFUSALS: list[tuple[str, tuple[str, ...], dict[str, Any], str]] = [
    ("hf", (), {"tensor": 2}, "accelerate cannot express this plan's tensor = 2, only 1"),
    ("deepspeed", (), {"data_style": "ddp"}, "deepspeed cannot express this plan's data_style = 'ddp'"),
    ("torchtitan", (), {"model": "mixtral-8x7b"}, "this model is mixtral"),
    (
        "torchtitan",
        (),
        {"model": "qwen3-30b-a3b", "expert": 8, "expert_exchange": "deepep"},
        "torchtitan cannot express this plan's expert_exchange = 'deepep', only all-to-all",
    ),
    ("hf", (), {"precision": "mxfp8"}, "--framework hf has the precisions bf16, fp8-current, not mxfp8"),
    ("torchtitan", (), {"tensor": 3}, "--tp 3 x --cp 1 x --pp 1 = 3 ranks hold the model once, and 64 GPUs"),
    ("hf", (), {"global_batch": 100}, "--global-batch 100 is no multiple of --mbs 1 x 64 data-parallel ranks = 64"),
    ("hf", (), {"model": "vllm:llama3-8b"}, "is no Hugging Face config, from which accelerate builds its model"),
    ("torchtitan", ("compile",), {}, "takes options of torchtitan's trainer, as --compile.enable; got 'compile'"),
    ("torchtitan", ("--parallelism.tensor_parallel_degree", "2"), {}, "which follows from the plan"),
    ("hf", ("--num-processes=2",), {}, "sets --num_processes, which follows from the plan"),
    ("deepspeed", ("gradient_accumulation_steps=2",), {}, "sets gradient_accumulation_steps, which follows"),
    ("deepspeed", ("stage2",), {}, "takes fields of DeepSpeed's configuration"),
    ("deepspeed", ("steps_per_print.x=2",), {}, "DeepSpeed's steps_per_print is a value, so there is no field"),
]


@pytest.mark.parametrize(("framework", "arguments", "fields", "words"), REFUSALS)
def test_what_a_framework_cannot_do_is_refused_by_name(
    framework: str, arguments: tuple[str, ...], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as refusal:
        run_of(framework, *arguments, **fields)
    assert words in str(refusal.value)


def test_a_missing_framework_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise launched.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(launched.metadata, "version", missing)
    with pytest.raises(InputError, match="torchtitan is not installed: `make frameworks`"):
        run_of("torchtitan")
