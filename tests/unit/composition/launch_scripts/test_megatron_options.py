"""Options of Megatron-LM beside a plan become fields of Megatron-Bridge's configuration, or are refused by name."""

from __future__ import annotations

import pytest

from presim.composition.frameworks.framework_arguments import megatron_fields
from presim.composition.launch_scripts.megatron_plan import option_fields
from presim.errors import InputError


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ("--tp-comm-overlap", ["model.tp_comm_overlap=true"]),
        ("--overlap-grad-reduce", ["ddp.overlap_grad_reduce=true", "comm_overlap.overlap_grad_reduce=true"]),
        ("--fp8-recipe delayed --fp8-format hybrid", []),
        ("--moe-token-dispatcher-type=alltoall", ["model.moe_token_dispatcher_type=alltoall"]),
        ("--no-rope-fusion", ["model.apply_rope_fusion=false"]),
        ("--clip-grad 0.5", ["optimizer.clip_grad=0.5"]),
        ("--attention-dropout 0.0", ["model.attention_dropout=0.0"]),
        (
            "--recompute-granularity selective --recompute-modules mlp core_attn",
            ["model.recompute_granularity=selective", "model.recompute_modules=[mlp,core_attn]"],
        ),
        ("--log-interval 10 --seed 1", []),  # changes no time
    ],
)
def test_an_option_is_the_field_that_means_the_same(options: str, fields: list[str]) -> None:
    assert option_fields(options.split(), "fp8-delayed") == fields


def test_a_layout_is_put_in_quotes_that_bridge_needs() -> None:
    layout = "model.pipeline_model_parallel_layout="
    fields = megatron_fields([f"{layout}E(t|)*6m|L", "model.recompute_modules=[mlp]"], (), "bf16")
    assert fields == (f"{layout}'E(t|)*6m|L'", "model.recompute_modules=[mlp]")
    assert megatron_fields(fields, (), "bf16") == fields


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--tensor-model-parallel-size 4", "--tensor-model-parallel-size, which follows from the plan"),
        ("--num-layers 4", "--num-layers, which follows from the plan"),
        ("--use-megatron-fsdp", "presim does not read Megatron-FSDP"),
        ("--nonsense", "--nonsense, an option of Megatron-LM that presim does not read"),
        ("--fp8-recipe mxfp8", "asks for mxfp8, and the plan for bf16; use --precision mxfp8"),
        ("--fp8-recipe magic", "--fp8-recipe magic is not read"),
        ("--fp4-format e2m1", "asks for nvfp4, and the plan for bf16"),
    ],
)
def test_what_is_not_read_is_named(options: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        option_fields(options.split(), "bf16")


def test_options_and_fields_are_mixed_and_fields_come_last() -> None:
    words = ["--moe-router-fusion", "model.recompute_granularity=full", "--fp8-recipe", "delayed", "ddp.bucket_size=4"]
    assert megatron_fields(words, {"model.seq_length"}, "fp8-delayed") == (
        "model.moe_router_fusion=true",
        "model.recompute_granularity=full",
        "ddp.bucket_size=4",
    )
    with pytest.raises(InputError, match="got 'selective'"):
        megatron_fields(["selective"], set(), "bf16")
