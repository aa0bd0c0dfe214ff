"""The model of a published run as `presim compose` takes it: a name of presim's, or a ``config.json`` of its sizes."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

from presim.composition.graph.take import config_file, named_models
from presim.studies.validation.cases import CannotBuildError, Case
from presim.system.files import make_folder, write_file
from presim_study.dense_models import NEMOTRONS
from presim_study.megatron_family import hybrids
from presim_study.models import plain_name, published_key, published_shapes
from presim_study.named_models import Shapes

_LAYERS, _HEADS = ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head")
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
_PADDING = 1024  # tables give the vocabulary as it is or padded
_DROPOUT = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}


def model_of(case: Case) -> str:
    """A name of presim's for the model, else a file with its config.

    Raises:
        CannotBuildError: the model is not known, or Megatron-Bridge has none of its kind.
    """
    pattern = hybrids.pattern_of(case)
    if pattern is not None:
        shapes = hybrids.shapes_of(case)
        return _written(case, _hybrid(shapes, pattern)) if shapes else ""
    shapes = published_shapes(case)
    return _named().get(_sizes(shapes)) or _written(case, _config(case, shapes))


def _sizes(shapes: Shapes) -> tuple[int, ...]:
    experts = int(str(shapes.fields.get("num_moe_experts", 0)))
    return shapes.layers, shapes.hidden, shapes.heads, shapes.kv_heads, experts, -(-shapes.vocab // _PADDING)


@functools.cache
def _named() -> Mapping[tuple[int, ...], str]:
    """presim's models by layers, hidden size, heads and experts."""
    found = {}
    for name in named_models():
        path = config_file(name)
        config: Mapping[str, Any] = json.loads(path.read_text()) if path else {}
        heads = _first(config, _HEADS)
        width = (_first(config, _LAYERS), _first(config, ("hidden_size", "n_embd")))
        kinds = (heads, config.get("num_key_value_heads", heads), _first(config, _EXPERTS))
        found[(*width, *kinds, -(-config.get("vocab_size", 0) // _PADDING))] = name
    return found


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return next((config[name] for name in names if name in config), 0)


def _config(case: Case, shapes: Shapes) -> dict[str, object]:
    fields = shapes.fields
    if fields.get("multi_latent_attention"):
        return _latent(shapes) | ({"model_type": "kimi_k2"} if plain_name(case).startswith("kimik2") else {})
    if published_key(case) in NEMOTRONS:
        return {**_dense(shapes, "nemotron", "NemotronForCausalLM"), "norm_eps": 1e-5, "hidden_act": "relu2"}
    if "num_moe_experts" in fields and shapes.style == "llama":
        return _sparse(case, shapes)
    is_gpt2 = shapes.style == "gpt" and shapes.positions == "learned"
    if not (is_gpt2 or shapes.style == "llama"):
        raise CannotBuildError(f"Megatron-Bridge has no model of this kind: {plain_name(case)}")
    if shapes.style == "llama":
        return _dense(shapes, "llama", "LlamaForCausalLM")
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": shapes.hidden,
        "n_layer": shapes.layers,
        "n_head": shapes.heads,
        "n_inner": shapes.ffn,
        "n_positions": case.count("seq_len"),
        "vocab_size": shapes.vocab,
        "tie_word_embeddings": shapes.tied,
        **_DROPOUT,
    }


def _dense(shapes: Shapes, kind: str, architecture: str) -> dict[str, object]:
    sizes: dict[str, object] = {
        "model_type": kind,
        "architectures": [architecture],
        "hidden_size": shapes.hidden,
        "intermediate_size": shapes.ffn,
        "num_hidden_layers": shapes.layers,
        "num_attention_heads": shapes.heads,
        "num_key_value_heads": shapes.kv_heads,
        "vocab_size": shapes.vocab,
        "tie_word_embeddings": shapes.tied,
        "max_position_embeddings": 131072,
    }
    if head := shapes.fields.get("kv_channels"):
        sizes["head_dim"] = head
    return sizes


def _sparse(case: Case, shapes: Shapes) -> dict[str, object]:
    """Llama 4's, and Mixtral's: the published benchmark of Grok 1 is Mixtral's code with its sizes."""
    fields: Mapping[str, Any] = shapes.fields
    experts = {"num_local_experts": fields["num_moe_experts"], "num_experts_per_tok": fields["moe_router_topk"]}
    if plain_name(case).startswith("llama4"):
        frequency = fields.get("moe_layer_freq", [1] * shapes.layers)
        return {
            **_dense(shapes, "llama4_text", "Llama4ForCausalLM"),
            **experts,
            "head_dim": shapes.hidden // shapes.heads,
            "intermediate_size": fields["moe_ffn_hidden_size"],
            "intermediate_size_mlp": shapes.ffn,
            "moe_layers": [layer for layer, kind in enumerate(frequency) if kind],
        }
    if not plain_name(case).startswith(("grok1", "mixtral")):
        raise CannotBuildError(f"Megatron-Bridge has no model of this kind: {plain_name(case)}")
    return {**_dense(shapes, "mixtral", "MixtralForCausalLM"), **experts}


def _latent(shapes: Shapes) -> dict[str, object]:
    """DeepSeek's."""
    fields: Mapping[str, Any] = shapes.fields
    is_third = fields.get("moe_router_score_function") == "sigmoid"
    name = "DeepseekV3ForCausalLM" if is_third else "DeepseekV2ForCausalLM"
    frequency = fields.get("moe_layer_freq", [1] * shapes.layers)
    return {
        **_dense(shapes, "deepseek_v3" if is_third else "deepseek_v2", name),
        "n_routed_experts": fields["num_moe_experts"],
        "num_experts_per_tok": fields["moe_router_topk"],
        "moe_intermediate_size": fields["moe_ffn_hidden_size"],
        "n_shared_experts": fields["moe_shared_expert_intermediate_size"] // fields["moe_ffn_hidden_size"],
        "first_k_dense_replace": frequency.count(0),
        "q_lora_rank": fields["q_lora_rank"],
        "kv_lora_rank": fields["kv_lora_rank"],
        "qk_nope_head_dim": fields["qk_head_dim"],
        "qk_rope_head_dim": fields["qk_pos_emb_head_dim"],
        "v_head_dim": fields["v_head_dim"],
        "num_nextn_predict_layers": fields.get("mtp_num_layers", 0),
        "n_group": 1,
        "topk_group": 1,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
    }


def _hybrid(shapes: Shapes, pattern: str) -> dict[str, object]:
    """Nemotron-H's."""
    fields: Mapping[str, Any] = shapes.fields
    config = {
        **_dense(shapes, "nemotron_h", "NemotronHForCausalLM"),
        "hybrid_override_pattern": pattern.split("/")[0],
        "mamba_num_heads": fields["mamba_num_heads"],
        "mamba_head_dim": fields["mamba_head_dim"],
        "n_groups": fields["mamba_num_groups"],
        "ssm_state_size": fields["mamba_state_dim"],
        "residual_in_fp32": False,
        "use_bias": False,
        "layer_norm_epsilon": 1e-5,
    }
    if "num_moe_experts" in fields:
        config |= {
            "n_routed_experts": fields["num_moe_experts"],
            "num_experts_per_tok": fields["moe_router_topk"],
            "moe_intermediate_size": fields["moe_ffn_hidden_size"],
            "moe_shared_expert_intermediate_size": fields["moe_shared_expert_intermediate_size"],
            "routed_scaling_factor": fields["moe_router_topk_scaling_factor"],
        }
    return config


def _written(case: Case, config: Mapping[str, object]) -> str:
    """A file with the config."""
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    path = Path(platformdirs.user_cache_dir("presim")) / "published" / f"{plain_name(case)}-{layers}" / "config.json"
    make_folder(path.parent)
    write_file(path, json.dumps(config, indent=1).encode())
    return str(path)
