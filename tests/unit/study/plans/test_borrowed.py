"""AutoModel's and torchtune's runs become runs of torchtitan's trainer."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.plan import Repeats
from presim_study.planners import plan

pytestmark = pytest.mark.usefixtures("installed")
ADAPTERS = {
    "id": "a", "framework": "NeMo AutoModel (PyTorch FSDP2)", "model": "Llama3 70B 2-node [LoRA]", "gpu": "H100",
    "n_gpus": "16", "gpus_per_node": "8", "precision": "BF16", "seq_len": "4096", "micro_batch": "1",
    "global_batch": "32", "tp": "2", "pp": "4", "vp": "10", "other": "local_batch=4;2",
}  # fmt: skip
TUNED = {
    "id": "t", "framework": "torchtune", "model": "Llama3.1-70B [LoRA]", "gpu": "A100", "n_gpus": "8",
    "precision": "bf16", "seq_len": "2048", "micro_batch": "2", "global_batch": "16", "compile": "True",
    "act_ckpt": "recipe default", "other": "packed dataset;",
}  # fmt: skip


def words(case: dict[str, str], **change: str) -> str:
    return " ".join(plan(Case({**case, **change})).args)


def test_layers_go_to_virtual_stages_in_equal_numbers() -> None:
    planned = plan(Case(ADAPTERS))
    said = " ".join(planned.args)
    assert (planned.recipe, planned.ranks) == ("torchtitan_trainer.py", (0, 4, 8, 12))
    assert "--batch 4 --microbatch 1 --accumulate 4 --tensor-parallel 2" in said
    assert "--schedule Interleaved1F1B --layers-per-stage 2 --ends-count-as 0,0" in said
    assert "--lora 16 --checkpoint full" in said
    assert "--layers-per-stage 9 --ends-count-as 0,1" in words(ADAPTERS, n_gpus="18", gpus_per_node="6", pp="9", vp="1")
    with pytest.raises(CannotBuildError, match="80 layers do not go to 32 stages in equal numbers"):
        plan(Case({**ADAPTERS, "vp": "8"}))


def test_one_gpu_computes_nothing_again_and_few_of_many_batches_are_captured() -> None:
    change = {"model": "Llama3 8B [LoRA]", "n_gpus": "1", "tp": "1", "pp": "1", "vp": "1", "other": "local_batch=2"}
    planned = plan(Case({**ADAPTERS, **change}))
    said = " ".join(planned.args)
    assert planned.repeats == Repeats(2, 6, 16)
    assert "--accumulate 1,2,6" in said
    assert "--checkpoint none" in said
    assert "--compile" in said


def test_a_model_that_torchtitan_has_not_is_built_from_its_shapes() -> None:
    assert "--shapes 64,5120,27648,40,8,152064" in words(ADAPTERS, model="Qwen2.5 32B [LoRA]", tp="1", vp="8")


def test_torchtune_trains_adapters_or_all_with_the_loss_in_pieces() -> None:
    said = words(TUNED)
    assert "--dtype bfloat16 --lora 16 --checkpoint full --chunked-loss --compile" in said
    full = words(TUNED, model="Llama3.1-70B [Full finetune]", other="CPU offload with fused optimizer")
    assert "--lora" not in full
    assert "--offload" in full


def test_torchtunes_flags_come_one_after_another() -> None:
    change = {"model": "Llama3.2-3B [Full finetune]", "n_gpus": "1", "global_batch": "2", "act_ckpt": "none"}
    packed = words(TUNED, **change, compile="False", other="cumulative flags up to: Packed dataset;")
    assert "--chunked-loss" not in packed
    assert "--compile" not in packed
    pieces = words(TUNED, **change, other="cumulative flags up to: + Chunked Cross Entropy;")
    assert "--checkpoint none --chunked-loss --compile" in pieces
    adapters = {**change, "model": "Llama3.2-3B [LoRA]", "act_ckpt": "full"}
    assert "--lora 8" in words(TUNED, **adapters, other="cumulative flags up to: LoRA;")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "Llama3.1-8B [QLoRA]"}, "the recipe has no weights in four bits"),
        (
            {"other": "cumulative flags up to: Activation offloading;"},
            "the recipe lacks what torchtune's row has: fuse optimizer step into backward",
        ),
        (
            {"other": "cumulative flags up to: Baseline;"},
            "the samples of torchtune's baseline are not packed: their lengths are not given",
        ),
        ({"other": "cumulative flags up to: Magic;"}, "torchtune's flag 'magic' is not known here"),
        ({"model": "Gemma 2 9B"}, "the recipe has no model 'Gemma 2 9B'"),
    ],
)
def test_what_the_recipe_has_not_is_a_reason(change: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotBuildError) as raised:
        plan(Case({**TUNED, **change}))
    assert str(raised.value) == reason


def test_the_trainer_has_to_be_installed(installed: set[str]) -> None:
    installed.discard("torchtitan")
    with pytest.raises(CannotBuildError, match="torchtitan is not installed: make frameworks"):
        plan(Case(TUNED))
