"""A plan becomes arguments of Megatron-Bridge, or a sentence says why it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from presim.composition.frameworks import megatron
from presim.composition.frameworks.megatron import FrameworkRun, plan_run
from presim.composition.plan import Plan
from presim.errors import InputError

VERSIONS = {"megatron-bridge": "0.3.1", "megatron-core": "0.16.1", "transformer_engine": "2.20.2"}


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megatron.metadata, "version", VERSIONS.__getitem__)


def run_of(
    world_size: int = 64, precision: str = "bf16", overrides: tuple[str, ...] = (), **fields: Any
) -> FrameworkRun:
    fields = {"sequence": 4096, **fields}
    return plan_run("llama3-8b", Plan(**fields), fields.keys(), world_size, precision, overrides)


def test_degrees_and_batches_become_bridge_s_own_fields() -> None:
    run = run_of(tensor=4, pipeline=2, virtual=4, context=2, micro_batch=2, global_batch=256, recompute="full")
    for argument in (
        "model.tensor_model_parallel_size=4",
        "model.sequence_parallel=true",
        "model.pipeline_model_parallel_size=2",
        "model.virtual_pipeline_model_parallel_size=4",
        "model.context_parallel_size=2",
        "model.recompute_granularity=full",
        "train.micro_batch_size=2",
        "ddp.use_distributed_optimizer=true",
        "bf16_mixed",
        "--tp-overlap",
    ):
        assert argument in run.arguments


@pytest.mark.parametrize(
    ("fields", "captured", "all_micro_batches"),
    [
        ({"global_batch": 64 * 32}, 4, 32),
        ({"global_batch": 64 * 3}, 3, 3),
        ({"global_batch": 64 * 32, "pipeline": 4}, 9, 128),
        ({"global_batch": 64 * 32, "pipeline": 4, "virtual": 2}, 20, 128),
    ],
)
def test_a_step_is_captured_with_as_few_micro_batches_as_repeat(
    fields: dict[str, int], captured: int, all_micro_batches: int
) -> None:
    run = run_of(**fields)
    assert (run.captured_micro_batches, run.step_micro_batches) == (captured, all_micro_batches)
    replicas = 64 // fields.get("pipeline", 1)
    assert f"train.global_batch_size={captured * replicas}" in run.arguments


def test_the_first_step_has_only_what_fills_the_pipeline() -> None:
    run = run_of(pipeline=4, global_batch=64 * 32)
    assert "train.rampup_batch_size=[128,16,128]" in run.arguments  # 16 replicas: 8 micro-batches, then 9


def test_overrides_come_last_and_settings_are_said() -> None:
    run = run_of(precision="fp8-current", overrides=("ddp.overlap_grad_reduce=false",))
    assert "bf16_with_fp8_current_scaling_mixed" in run.arguments
    ours, theirs = (run.arguments.index(f"ddp.overlap_grad_reduce={value}") for value in ("true", "false"))
    assert ours < theirs
    assert "megatron-bridge 0.3.1" in run.notes[0]
    assert "fp8-current" in run.notes[0]


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"passes": ("fuse-norm",)}, "the plan sets passes, which --framework megatron does not take"),
    ({"schedule": "zero-bubble"}, "Megatron does not run zero-bubble with 1 virtual stages"),
    ({"schedule": "interleaved", "pipeline": 2}, "Megatron does not run interleaved with 1 virtual stages"),
    ({"expert_exchange": "deepep"}, "the plan sets expert_exchange, which takes --ep above 1"),
    ({"context_style": "ring"}, "the plan sets context_style, which takes --cp above 1"),
    ({"data_style": "fsdp2"}, "--dp-style fsdp2 is not taken"),
    ({"tensor": 3}, "64 GPUs are no multiple of tp x cp x pp = 3"),
    ({"global_batch": 100}, "a global batch of 100 is no multiple of 64 data-parallel ranks"),
    ({"pipeline": 4, "virtual": 2, "global_batch": 16 * 6}, "takes multiples of 4 micro-batches, and the step has 6"),
    ({"overrides": ("--nonsense",)}, "--framework-args has --nonsense, an option of Megatron-LM that presim does not"),
    ({"overrides": ("--fp8-recipe", "delayed")}, "asks for fp8-delayed, and the plan for bf16"),
    ({"precision": "mxfp4"}, "--precision mxfp4: Megatron-Bridge 0.3.1 has no such recipe for training"),
    ({"overrides": ("model.seq_length=9",)}, "--framework-args sets model.seq_length, which follows from the plan"),
    (
        {"overrides": ("/no/such.yaml",)},
        "a YAML file of them, or options of Megatron-LM, as --tp-comm-overlap; got '/no/such",
    ),
]


@pytest.mark.parametrize(("fields", "sentence"), REFUSALS, ids=[str(index) for index in range(len(REFUSALS))])
def test_a_plan_that_megatron_cannot_have_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        run_of(**fields)


def test_a_framework_that_is_missing_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise megatron.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(megatron.metadata, "version", missing)
    with pytest.raises(InputError, match="megatron-bridge is not installed: `make frameworks`"):
        run_of()


def test_graphs_are_made_after_the_first_step_and_replayed_in_the_third() -> None:
    run = run_of(overrides=("model.cuda_graph_impl=transformer_engine",))
    assert run.steps == 3
    assert "model.cuda_graph_warmup_steps=1" in run.arguments
    assert run_of(overrides=("model.cuda_graph_impl=none",)).steps == run_of().steps == 2


def test_a_user_s_graph_of_the_whole_iteration_is_no_field_but_no_kernel_waits() -> None:
    run = run_of(overrides=("model.cuda_graph_impl=local", "model.cuda_graph_scope=[full_iteration]"))
    assert run.is_whole_graph
    assert run.steps == 2
    assert not [argument for argument in run.arguments if "cuda_graph" in argument]
    assert any("one CUDA graph" in note for note in run.notes)


def test_attention_in_fp8_is_no_field_but_added_to_the_capture() -> None:
    field = "mixed_precision.fp8_dot_product_attention"
    assert run_of(precision="nvfp4", overrides=(f"{field}=true",)).attends_in_fp8
    plan = Plan(sequence=4096, micro_batch=4, global_batch=512, expert=8)
    recipes = [
        plan_run("qwen3-30b-a3b", plan, (), 8, "mxfp8", fields, gpu="gb200") for fields in ((), (f"{field}=false",))
    ]
    assert [run.attends_in_fp8 for run in recipes] == [True, False]
    assert not [argument for run in recipes for argument in run.arguments if field in argument]


def test_a_configuration_of_bridge_s_is_taken_as_it_is_but_for_the_plan_s_sizes(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "model:\n  _target_: some.Class\n  seq_length: 9\n  recompute_modules: [mlp, core_attn]\n"
        "  apply_rope_fusion: false\n  num_layers_in_first_pipeline_stage: null\nddp:\n  bucket_size: 1000\n"
    )
    arguments = run_of(overrides=(str(file), "ddp.bucket_size=7")).arguments
    assert "model.recompute_modules=[mlp,core_attn]" in arguments
    assert "model.apply_rope_fusion=false" in arguments
    assert arguments.index("ddp.bucket_size=1000") < arguments.index("ddp.bucket_size=7")
    assert not any("some.Class" in word or word == "model.seq_length=9" or "null" in word for word in arguments)


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("- a\n- b\n")
    with pytest.raises(InputError, match=r"mine.yaml is no configuration of Megatron-Bridge's: it has no fields"):
        run_of(overrides=(str(file),))
