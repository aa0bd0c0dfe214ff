"""Plans of AutoModel's mixtures of experts, by its own models and sharding.

What its tables leave to recipes is from those that they link to: ``examples/benchmark/configs`` of AutoModel (later
``examples/llm_benchmark``), in the version whose attention and batches are the table's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family import hybrids
from presim_study.models import UNLIKE, plain_name, published_shapes
from presim_study.named_models import Shapes
from presim_study.plan import (
    Plan,
    accumulation,
    checkpointing,
    cluster_of,
    needs_installed,
    only_one,
    options,
    repeats_for,
    steps_for,
)
from presim_study.plans.trainer import batch_of

_RECIPE = "automodel_experts.py"
_NEEDS = ("nemo_automodel", "transformer_engine")
_ATTENTION = {"flex": "flex", "sdpa": "sdpa"}  # what the words for kernels hold -> its name; else Transformer Engine's
_OTHER_EXCHANGES = ("hybridep", "hybrid-ep", "uccl", "mixture-of-kittens")


@dataclasses.dataclass(frozen=True)
class _Family:
    """Models that AutoModel builds by one class."""

    configuration: str  # class of transformers
    architecture: str
    fields: Callable[[Shapes], dict[str, object]]
    checkpoint: bool  # its recipes compute layers again
    gathers_once: bool  # and gather weights and reduce gradients once for all micro-batches


def _whole(shapes: Shapes, name: str) -> int:
    """A field that is a whole number."""
    value = shapes.fields.get(name)
    if not isinstance(value, int):
        raise CannotBuildError(f"the case's cells do not say {name}; leave them empty for the published model's")
    return value


def _sizes(shapes: Shapes) -> dict[str, object]:
    """Fields that all but DeepSeek's have."""
    return {
        "hidden_size": shapes.hidden,
        "num_attention_heads": shapes.heads,
        "num_key_value_heads": shapes.kv_heads,
        "head_dim": _whole(shapes, "kv_channels"),
        "vocab_size": shapes.vocab,
        "num_experts_per_tok": _whole(shapes, "moe_router_topk"),
    }


def _qwen3(shapes: Shapes) -> dict[str, object]:
    return {
        **_sizes(shapes),
        "num_hidden_layers": shapes.layers,
        "intermediate_size": shapes.ffn,
        "num_experts": _whole(shapes, "num_moe_experts"),
        "moe_intermediate_size": _whole(shapes, "moe_ffn_hidden_size"),
        "norm_topk_prob": True,
    }


def _gpt_oss(shapes: Shapes) -> dict[str, object]:
    return {
        **_sizes(shapes),
        "num_hidden_layers": shapes.layers,
        "intermediate_size": shapes.ffn,
        "num_local_experts": _whole(shapes, "num_moe_experts"),
    }


def _nemotron(shapes: Shapes) -> dict[str, object]:
    return {
        **_sizes(shapes),
        "intermediate_size": shapes.ffn,
        "mamba_num_heads": _whole(shapes, "mamba_num_heads"),
        "mamba_head_dim": _whole(shapes, "mamba_head_dim"),
        "ssm_state_size": _whole(shapes, "mamba_state_dim"),
        "n_groups": _whole(shapes, "mamba_num_groups"),
        "n_routed_experts": _whole(shapes, "num_moe_experts"),
        "moe_intermediate_size": _whole(shapes, "moe_ffn_hidden_size"),
        "moe_shared_expert_intermediate_size": _whole(shapes, "moe_shared_expert_intermediate_size"),
        "moe_latent_size": shapes.fields.get("moe_latent_size"),
        "routed_scaling_factor": shapes.fields["moe_router_topk_scaling_factor"],
    }


def _deepseek(shapes: Shapes) -> dict[str, object]:
    frequency = shapes.fields.get("moe_layer_freq")
    return {
        "num_hidden_layers": shapes.layers,
        "hidden_size": shapes.hidden,
        "num_attention_heads": shapes.heads,
        "num_key_value_heads": shapes.kv_heads,
        "vocab_size": shapes.vocab,
        "intermediate_size": shapes.ffn,
        "q_lora_rank": _whole(shapes, "q_lora_rank"),
        "kv_lora_rank": _whole(shapes, "kv_lora_rank"),
        "qk_nope_head_dim": _whole(shapes, "qk_head_dim"),
        "qk_rope_head_dim": _whole(shapes, "qk_pos_emb_head_dim"),
        "v_head_dim": _whole(shapes, "v_head_dim"),
        "n_routed_experts": _whole(shapes, "num_moe_experts"),
        "num_experts_per_tok": _whole(shapes, "moe_router_topk"),
        "moe_intermediate_size": _whole(shapes, "moe_ffn_hidden_size"),
        "first_k_dense_replace": frequency.count(0) if isinstance(frequency, list) else 0,
    }


_DEEPSEEK = _Family("DeepseekV3Config", "DeepseekV3ForCausalLM", _deepseek, checkpoint=True, gathers_once=True)
_FAMILIES = {  # how names begin
    "deepseekv3": _DEEPSEEK,
    "kimik2": dataclasses.replace(_DEEPSEEK, gathers_once=False),
    "qwen3": _Family("Qwen3MoeConfig", "Qwen3MoeForCausalLM", _qwen3, checkpoint=True, gathers_once=True),
    "gptoss": _Family("GptOssConfig", "GptOssForCausalLM", _gpt_oss, checkpoint=False, gathers_once=False),
    "nemotron3nano": _Family("NemotronHConfig", "NemotronHForCausalLM", _nemotron, checkpoint=True, gathers_once=True),
    "nemotron3super": _Family(
        "NemotronHConfig", "NemotronHForCausalLM", _nemotron, checkpoint=True, gathers_once=False
    ),
}
_GATHERED_AGAIN = ("gptoss120b", "nemotron3super")  # whose weights the recipes do not keep for the backward pass


def plan_experts(case: Case) -> Plan:
    """All weights trained in bf16, FSDP2 over all GPUs, experts over ``ep`` of them, tokens exchanged by DeepEP.

    Where a table says no EP (GPT-OSS's), experts go to all GPUs, as in its recipes.

    Raises:
        CannotBuildError: another model, adapters, other precisions or ways of exchange, stages that layers do not fill.
    """
    family = _family_of(case)
    pattern = hybrids.pattern_of(case)
    shapes = hybrids.shapes_of(case) or published_shapes(case)
    fields = {"hybrid_override_pattern": pattern.split("/")[0]} if pattern else {}
    cluster = cluster_of(case)
    stages = case.count("pp", 1)
    if cluster.world_size % stages:
        raise CannotBuildError(f"{cluster.world_size} GPUs do not go to pp = {stages} stages")
    replicas, batch = cluster.world_size // stages, batch_of(case)
    split = _split(case, shapes, replicas)
    for package in (*_NEEDS, *(("mamba_ssm", "causal_conv1d") if pattern else ())):
        needs_installed(package)
    batches = accumulation(Case({**case.row, "micro_batch": str(batch)}), replicas)
    repeats = repeats_for(batches, 1)
    said, name = case.text("other").lower(), plain_name(case)
    return Plan(
        _RECIPE,
        options(
            config=family.configuration,
            architecture=family.architecture,
            set=json.dumps({**fields, **family.fields(shapes)}, separators=(",", ":")),
            attention=next((kind for word, kind in _ATTENTION.items() if word in said), "te"),
            sequence=case.count("seq_len"),
            batch=batch,
            expert_parallel=split,
            accumulate=f"1,{repeats.first},{repeats.second}" if repeats else batches,
            checkpoint=_computes_again(case, family),
            reshard=name.startswith(_GATHERED_AGAIN),
            gathers_once=family.gathers_once,
            **_pipeline(case, shapes, batch),
        ),
        cluster,
        tuple(range(0, cluster.world_size, replicas)),
        steps=3 if repeats else steps_for(batches * batch if stages > 1 else batches),
        repeats=repeats,
    )


def _family_of(case: Case) -> _Family:
    """What the case's model is of, where nothing else of it is in the way."""
    only_one(case, "tp", "cp")
    name, said = plain_name(case), case.text("other").lower()
    family = next((family for start, family in _FAMILIES.items() if name.startswith(start)), None)
    if family is None or name.startswith(UNLIKE):
        raise CannotBuildError(f"the recipe has no model {case.text('model')!r} of AutoModel's")
    if "lora" in case.text("model").lower():
        raise CannotBuildError("the recipe trains all weights, and the case adapters")
    if case.precision() != "bf16":
        raise CannotBuildError(f"the recipe computes in bf16, and the case in {case.text('precision')!r}")
    if other := next((word for word in _OTHER_EXCHANGES if word in said), None):
        raise CannotBuildError(f"the recipe exchanges tokens by DeepEP, and the case by {other}")
    return family


def _split(case: Case, shapes: Shapes, replicas: int) -> int:
    """To how many GPUs the experts of a layer go."""
    split = case.count("ep", 1) if case.count("ep", 1) > 1 else replicas
    count = _whole(shapes, "num_moe_experts")
    if replicas % split or count % split:
        raise CannotBuildError(f"{count} experts do not go to ep = {split} of the {replicas} GPUs of a stage")
    return split


def _pipeline(case: Case, shapes: Shapes, batch: int) -> dict[str, object]:
    """Options of one; none where there is one stage. AutoModel fills up virtual stages to as many on each rank."""
    stages, layers = case.count("pp", 1), shapes.layers
    if stages == 1:
        return {}
    if shapes.fields.get("is_hybrid_model"):
        raise CannotBuildError(f"the recipe has no pipeline of hybrids, and the case has pp = {stages}")
    virtual, micro = case.count("vp", 1), case.count("micro_batch")
    each = -(-layers // (stages * virtual))
    if virtual < 2 or -(-layers // each // stages) != virtual or batch % micro:
        raise CannotBuildError(
            f"AutoModel's pipeline has two or more stages on each of pp = {stages} ranks, equal but for a layer, and "
            f"whole micro-batches of {micro} in {batch}: {layers} layers do not go to vp = {virtual} of them"
        )
    return {"pipeline_parallel": stages, "microbatch": micro, "layers_per_stage": each}


def _computes_again(case: Case, family: _Family) -> bool:
    """Whether layers are: what the case says, else what its recipe does."""
    if case.text("act_ckpt").lower().startswith(("see ", "recipe")) or not case.text("act_ckpt"):
        return family.checkpoint
    return checkpointing(case) == "full"
