"""AutoModel's mixtures of experts run its own models, with what its tables leave to recipes."""

from __future__ import annotations

import json

import pytest

from presim.validation.cases import CannotBuildError, Case
from presim.validation.plan import Plan, Repeats
from presim.validation.planners import plan

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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "DeepSeek V3 671B", "pp": "4"}, "the recipe has no PP, and the case has pp = 4"),
        ({"model": "Moonlight 16B"}, "the recipe has no model 'Moonlight 16B' of AutoModel's"),
        ({"model": "Qwen3 MoE 30B [LoRA]"}, "the recipe trains all weights, and the case adapters"),
        ({"precision": "MXFP8"}, "the recipe computes in bf16, and the case in 'MXFP8'"),
        ({"other": "TE + HybridEP"}, "by DeepEP, and the case by hybridep"),
        ({"ep": "3"}, "128 experts do not go to ep = 3 of 8 GPUs"),
    ],
)
def test_what_the_recipe_has_not_is_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(CannotBuildError, match=words):
        planned(**change)
