"""AutoModel's mixtures of experts run its own models, with what its tables leave to recipes."""

from __future__ import annotations

import json

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.plan import Plan, Repeats
from presim_study.planners import plan

pytestmark = pytest.mark.usefixtures("installed")
QWEN = {
    "id": "q", "framework": "NeMo AutoModel (PyTorch FSDP2)", "model": "Qwen3 MoE 30B", "gpu": "H100", "n_gpus": "8",
    "gpus_per_node": "8", "precision": "BF16", "seq_len": "4096", "micro_batch": "4", "global_batch": "512", "tp": "1",
    "pp": "1", "cp": "1", "ep": "8", "act_ckpt": "see examples/llm_benchmark yaml",
    "other": "local_batch=4;TE + DeepEP",
}  # fmt: skip
SUPER = {
    "model": "Nemotron V3 Super 120B (26.02)", "n_gpus": "64", "micro_batch": "2", "ep": "64",
    "other": "local_batch=2;TE + DeepEP + TorchSDPA",
}  # fmt: skip
OSS = {
    "model": "GPT-OSS 120B", "n_gpus": "64", "micro_batch": "2", "ep": "1",
    "other": "local_batch=2;TE + DeepEP + FlexAttn",
}  # fmt: skip


def planned(**change: str) -> Plan:
    return plan(Case({**QWEN, **change}))


def fields(found: Plan) -> dict[str, object]:
    return json.loads(found.args[found.args.index("--set") + 1])


def test_a_step_of_many_micro_batches_is_captured_as_two_of_few() -> None:
    found = planned()
    assert found.recipe == "automodel_experts.py"
    assert found.repeats == Repeats(2, 6, 16)
    said = " ".join(found.args)
    assert "--architecture Qwen3MoeForCausalLM" in said
    assert "--attention te --sequence 4096 --batch 4 --expert-parallel 8 --accumulate 1,2,6" in said
    assert said.endswith("--checkpoint --gathers-once")
    assert (fields(found)["num_experts"], fields(found)["moe_intermediate_size"]) == (128, 768)


def test_layers_of_hybrids_are_those_without_predictors() -> None:
    found = planned(**SUPER)
    said, sizes = " ".join(found.args), fields(found)
    assert str(sizes["hybrid_override_pattern"]).endswith("EMEMEMEM*EMEMEMEME")
    assert (len(str(sizes["hybrid_override_pattern"])), sizes["moe_latent_size"]) == (88, 1024)
    assert "--attention sdpa" in said
    assert said.endswith("--accumulate 4 --checkpoint --reshard")


def test_experts_go_to_all_gpus_where_the_table_does_not_say() -> None:
    said = " ".join(planned(**OSS).args)
    assert "--attention flex --sequence 4096 --batch 2 --expert-parallel 64 --accumulate 4 --reshard" in said
    assert "--checkpoint" not in said  # its recipe does not
    assert "--checkpoint" in " ".join(planned(**OSS, act_ckpt="full").args)
    assert "--checkpoint" not in " ".join(planned(**OSS, act_ckpt="").args)


def test_a_pipeline_has_a_rank_of_each_stage_and_a_batch_of_several_micro_batches() -> None:
    found = planned(
        model="DeepSeek V3 671B",
        n_gpus="256",
        micro_batch="1",
        pp="4",
        vp="8",
        ep="64",
        other="local_batch=8;TE + DeepEP",
    )
    said = " ".join(found.args)
    assert found.ranks == (0, 64, 128, 192)
    assert "--batch 8 --expert-parallel 64 --accumulate 1 --checkpoint --gathers-once" in said
    assert said.endswith("--pipeline-parallel 4 --microbatch 1 --layers-per-stage 2")
    assert (found.steps, fields(found)["first_k_dense_replace"]) == (2, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"model": "DeepSeek V3 671B", "n_gpus": "64", "pp": "4", "vp": "10"},
            "61 layers do not go to vp = 10 of them",
        ),
        ({**SUPER, "pp": "4", "ep": "16"}, "the recipe has no pipeline of hybrids, and the case has pp = 4"),
        ({"model": "DeepSeek V3 671B", "tp": "4"}, "the recipe has no TP, and the case has tp = 4"),
        ({"model": "DeepSeek V3.2", "n_gpus": "64"}, "the recipe has no model 'DeepSeek V3.2' of AutoModel's"),
        ({"model": "Moonlight 16B"}, "the recipe has no model 'Moonlight 16B' of AutoModel's"),
        ({"model": "Qwen3 MoE 30B [LoRA]"}, "the recipe trains all weights, and the case adapters"),
        ({"n_layers": "4", "hidden": "512", "ffn": "1024", "n_heads": "8"}, "cells do not say num_moe_experts"),
        ({"precision": "MXFP8"}, "the recipe computes in bf16, and the case in 'MXFP8'"),
        ({"other": "TE + HybridEP"}, "by DeepEP, and the case by hybridep"),
        ({"model": "DeepSeek V3 671B", "pp": "3"}, "8 GPUs do not go to pp = 3 stages"),
        ({"ep": "3"}, "128 experts do not go to ep = 3 of the 8 GPUs of a stage"),
    ],
)
def test_what_the_recipe_has_not_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(CannotBuildError, match=words):
        planned(**change)
