"""Megatron's own options, as a case gives them, in the recipe's words."""

from __future__ import annotations

from collections.abc import Mapping

from presim.studies.validation.cases import CannotBuildError, Case

_OPTIMIZERS = ("adam", "muon", "dist_muon")
_NUMBERS = {  # option -> field of TransformerConfig
    "kv-channels": "kv_channels",
    "q-lora-rank": "q_lora_rank",
    "kv-lora-rank": "kv_lora_rank",
    "qk-head-dim": "qk_head_dim",
    "qk-pos-emb-head-dim": "qk_pos_emb_head_dim",
    "v-head-dim": "v_head_dim",
    "mtp-num-layers": "mtp_num_layers",
    "wgrad-deferral-limit": "wgrad_deferral_limit",
    "moe-flex-dispatcher-num-sms": "moe_hybridep_num_sms",  # named so before
    "decoder-first-pipeline-num-layers": "num_layers_in_first_pipeline_stage",
    "decoder-last-pipeline-num-layers": "num_layers_in_last_pipeline_stage",
}
_SWITCHES = {
    "attention-softmax-in-fp32": "attention_softmax_in_fp32",
    "apply-query-key-layer-scaling": "apply_query_key_layer_scaling",
    "cross-entropy-loss-fusion": "cross_entropy_loss_fusion",
    "defer-embedding-wgrad-compute": "defer_embedding_wgrad_compute",
    "multi-latent-attention": "multi_latent_attention",
    "moe-permute-fusion": "moe_permute_fusion",
    "overlap-moe-expert-parallel-comm": "overlap_moe_expert_parallel_comm",
    "qk-layernorm": "qk_layernorm",
}
_WORDS = {"normalization": "normalization", "moe-flex-dispatcher-backend": "moe_flex_dispatcher_backend"}
_SHARES = {"attention-dropout": "attention_dropout", "hidden-dropout": "hidden_dropout"}
_NAMES = {  # what a published case says in its name only
    "qk_layernorm": {"qk_layernorm": True},
    "account_for_embedding_loss": {
        "account_for_embedding_in_pipeline_split": True,
        "account_for_loss_in_pipeline_split": True,
    },
}


def flags_of(case: Case) -> Mapping[str, str]:
    """What the case says of Megatron's own options: ``name=value;name=value``."""
    words = (part.partition("=") for part in case.text("other").split(";"))
    return {name.strip(): value for name, _, value in words if name.strip()}


def refuse_unknown(said: Mapping[str, str]) -> None:
    """Raise where an option asks for what the recipe has not."""
    if said.get("cuda-graph-impl", "none") != "none" and not said.get("cuda-graph-modules"):
        raise CannotBuildError(f"cuda-graph-impl = {said['cuda-graph-impl']}, and of which modules is not given")
    if said.get("optimizer", "adam") not in _OPTIMIZERS:
        raise CannotBuildError(f"the recipes' optimizers are Adam and Muon, and the case's is {said['optimizer']}")


def fields_of(case: Case, said: Mapping[str, str]) -> dict[str, object]:
    """Fields of TransformerConfig."""
    fields: dict[str, object] = {field: int(said[name]) for name, field in _NUMBERS.items() if said.get(name)}
    fields |= {field: True for name, field in _SWITCHES.items() if said.get(name) == "True"}
    if said.get("disable-bias-linear") == "True":
        fields["add_bias_linear"] = False
    if said.get("no-masked-softmax-fusion") == "True":
        fields["masked_softmax_fusion"] = False
    if said.get("swiglu") == "True":
        fields["gated_linear_unit"] = True
    if fields.get("cross_entropy_loss_fusion"):
        fields["cross_entropy_fusion_impl"] = said.get("cross-entropy-fusion-impl", "native")  # Megatron's own default
    fields |= {field: float(said[name]) for name, field in _SHARES.items() if name in said}
    fields |= {field: said[name] for name, field in _WORDS.items() if said.get(name)}
    if modules := said.get("offload-modules", "").strip("[]").split():
        fields |= {"fine_grained_activation_offloading": True, "offload_modules": modules}
    if layout := said.get("pipeline-model-parallel-layout"):
        fields["pipeline_model_parallel_layout"] = layout
    for words, named in _NAMES.items():
        fields |= named if words in case.text("model") else {}
    return fields | _recomputation(case, said)


def _recomputation(case: Case, said: Mapping[str, str]) -> dict[str, object]:
    """Of parts of a layer, or of some of the layers; that of each of them is an option of the recipe."""
    modules = said.get("recompute-modules", "").strip("[]").split()
    method, count = said.get("recompute-method") or "uniform", int(said.get("recompute-num-layers") or 1)
    if case.text("act_ckpt").lower().startswith("full") and (method, count) != ("uniform", 1):
        return {"recompute_method": method, "recompute_num_layers": count}
    if case.text("act_ckpt").lower().startswith("selective"):
        return {"recompute_granularity": "selective", "recompute_modules": modules or ["core_attn"]}
    return {}
