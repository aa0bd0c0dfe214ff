"""A model's sizes in Megatron-LM's arguments as a Hugging Face config."""

from __future__ import annotations

from typing import Any

from presim.composition.graph.take import config_file, named_models
from presim.composition.launch_scripts.megatron_arguments import Arguments
from presim.errors import InputError
from presim.system.files import decode_json, read_bytes

_VOCABULARIES = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}  # of tokenizers that Megatron-LM has itself
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
# what changes a model's layers in a way that no config here has
_REFUSED = (
    *("--squared-relu", "--quick-geglu", "--geglu", "--softmax-type", "--window-size", "--hybrid-override-pattern"),
    *("--is-hybrid-model", "--hybrid-attention-ratio", "--experimental-attention-variant", "--spec"),
    *("--attention-output-gate", "--encoder-num-layers", "--use-legacy-models", "--sliding-window-size"),
)


def model_config(arguments: Arguments, vocabulary: int | None = None) -> dict[str, Any]:
    """The config of the model that the arguments describe. ``vocabulary``: None: Megatron's padded.

    Raises:
        InputError: a size is missing, or the layers are of no family that presim has.
    """
    if refused := [name for name in _REFUSED if arguments.has(name)]:
        raise InputError(
            f"the launch's {refused[0]} makes layers that presim cannot describe from sizes; name MODEL before --from"
        )
    layers, hidden = _needed(arguments, "--num-layers"), _needed(arguments, "--hidden-size")
    heads = _needed(arguments, "--num-attention-heads")
    vocabulary = vocabulary or padded_vocabulary(arguments)
    arguments.has("--disable-bias-linear")
    positions = arguments.count("--max-position-embeddings", _needed(arguments, "--seq-length"))
    is_tied = not arguments.has("--untie-embeddings-and-output-weights")
    has_norm = arguments.text("--normalization") == "RMSNorm"
    style = arguments.text("--position-embedding-type")
    is_rotary = arguments.has("--use-rotary-position-embeddings") or style in ("rope", "yarn")
    if not arguments.has("--swiglu"):
        return _gpt2(arguments, layers, hidden, heads, vocabulary, positions, is_tied, is_rotary or has_norm)
    if not (has_norm and is_rotary):
        raise InputError(
            "the launch has --swiglu without both --normalization RMSNorm and rotary positions, and no family here has "
            "such layers; name MODEL before --from"
        )
    config = {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocabulary,
        "intermediate_size": arguments.count("--ffn-hidden-size", int(hidden * 8 / 3) // 64 * 64),
        "max_position_embeddings": positions, "tie_word_embeddings": is_tied, "hidden_act": "silu",
        "rms_norm_eps": arguments.real("--norm-epsilon", 1e-5),
        "rope_theta": arguments.real("--rotary-base", 10000),
    }  # fmt: skip
    if arguments.has("--multi-latent-attention"):
        return config | _latent(arguments, layers)
    groups = arguments.number("--num-query-groups")
    config["num_key_value_heads"] = (groups or heads) if arguments.has("--group-query-attention") else heads
    config["head_dim"] = arguments.count("--kv-channels", hidden // heads)
    return config | _family(arguments, config)


def padded_vocabulary(arguments: Arguments) -> int:
    """Megatron's padded vocabulary.

    Source: `_vocab_size_with_padding`, megatron/training/tokenizer: a multiple of ``--make-vocab-size-divisible-by``
    (128) times the tensor-parallel degree.

    Raises:
        InputError: the launch does not say the vocabulary.
    """
    if (padded := arguments.number("--padded-vocab-size")) is not None:
        return padded
    tokenizer = arguments.text("--tokenizer-type") or ("GPT2BPETokenizer" if arguments.has("--merge-file") else "")
    size = arguments.number("--vocab-size") or _VOCABULARIES.get(tokenizer) or _named_vocabulary(arguments)
    if size is None:
        raise InputError(
            f"the launch does not say its vocabulary, which its tokenizer ({tokenizer or 'unnamed'}) has; name MODEL "
            "before --from"
        )
    part = arguments.count("--make-vocab-size-divisible-by", 128) * arguments.count("--tensor-model-parallel-size", 1)
    return -(-size // part) * part


def _named_vocabulary(arguments: Arguments) -> int | None:
    """The vocabulary of the named models with these sizes, if they have one and the same."""
    sizes = {
        "num_hidden_layers": arguments.number("--num-layers"),
        "hidden_size": arguments.number("--hidden-size"),
        "num_attention_heads": arguments.number("--num-attention-heads"),
        "intermediate_size": arguments.number("--ffn-hidden-size"),
    }
    experts, vocabularies = arguments.count("--num-experts", 0), set()
    for path in filter(None, map(config_file, named_models())):
        config = decode_json(read_bytes(path, "name another model"), dict[str, Any])
        config_experts = next((config[name] for name in _EXPERTS if config.get(name)), 0)
        if config_experts == experts and all(config.get(name) == size for name, size in sizes.items()):
            vocabularies.add(config["vocab_size"])
    return vocabularies.pop() if len(vocabularies) == 1 else None


def _needed(arguments: Arguments, name: str) -> int:
    number = arguments.number(name)
    if number is None:
        raise InputError(f"the launch lacks {name}, without which its model has no size; name MODEL before --from")
    return number


def _gpt2(
    arguments: Arguments, layers: int, hidden: int, heads: int, vocabulary: int, positions: int, tied: bool, other: bool
) -> dict[str, Any]:
    if other or arguments.has("--num-experts") or arguments.has("--group-query-attention"):
        raise InputError(
            "the launch has neither GPT-2's layers nor --swiglu with RMSNorm and rotary positions; name MODEL before "
            "--from"
        )
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": hidden, "n_layer": layers,
        "n_head": heads, "n_inner": arguments.count("--ffn-hidden-size", 4 * hidden), "n_positions": positions,
        "vocab_size": vocabulary, "activation_function": "gelu_new", "tie_word_embeddings": tied,
        "attn_pdrop": arguments.real("--attention-dropout", 0.1), "embd_pdrop": 0.0,
        "resid_pdrop": arguments.real("--hidden-dropout", 0.1),
    }  # fmt: skip


def _family(arguments: Arguments, config: dict[str, Any]) -> dict[str, Any]:
    """The fields of a family of decoders with grouped queries."""
    has_norm, has_bias = arguments.has("--qk-layernorm"), arguments.has("--add-qkv-bias")
    experts = arguments.count("--num-experts", 0)
    if experts:
        if arguments.has("--moe-shared-expert-intermediate-size") or has_bias:
            raise InputError(
                "the launch has shared experts or biases of queries beside grouped queries, which no family here has; "
                "name MODEL before --from"
            )
        top_k, size = arguments.count("--moe-router-topk", 2), arguments.number("--moe-ffn-hidden-size")
        if dense := dense_layers(arguments, config["num_hidden_layers"]):
            raise InputError(f"the launch has {dense} dense layers before experts; name MODEL before --from")
        if has_norm:
            return {
                "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": experts,
                "num_experts_per_tok": top_k, "moe_intermediate_size": size or config["intermediate_size"],
                "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
            }  # fmt: skip
        return {
            "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": experts,
            "num_experts_per_tok": top_k, "intermediate_size": size or config["intermediate_size"],
            "sliding_window": None,
        }  # fmt: skip
    name = "qwen3" if has_norm else "qwen2" if has_bias else "llama"
    classes = {"qwen3": "Qwen3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}
    return {"model_type": name, "architectures": [classes[name]]}


def dense_layers(arguments: Arguments, layers: int) -> int:
    """Layers without experts before the first with them.

    Raises:
        InputError: ``--moe-layer-freq`` is a pattern of another kind.
    """
    pattern = (arguments.text("--moe-layer-freq") or "1").replace(" ", "").strip("()")
    if pattern == "1" or pattern == f"[1]*{layers}":
        return 0
    dense_part, plus, expert_part = pattern.partition("+")
    if (
        plus
        and dense_part.startswith("[0]*")
        and dense_part[4:].isdigit()
        and expert_part == f"[1]*{layers - int(dense_part[4:])}"
    ):
        return int(dense_part[4:])
    raise InputError(
        f"--moe-layer-freq {pattern} is not understood for {layers} layers; presim reads ([0]*D+[1]*E) with D + E = "
        f"{layers}: name MODEL before --from"
    )


def _latent(arguments: Arguments, layers: int) -> dict[str, Any]:
    experts = _needed(arguments, "--num-experts")
    size = _needed(arguments, "--moe-ffn-hidden-size")
    shared = arguments.count("--moe-shared-expert-intermediate-size", 0)
    arguments.has("--qk-layernorm")
    arguments.has("--kv-channels")
    return {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "moe_intermediate_size": size,
        "num_key_value_heads": arguments.number("--num-attention-heads"), "n_routed_experts": experts,
        "n_shared_experts": shared // size, "num_experts_per_tok": arguments.count("--moe-router-topk", 2),
        "n_group": arguments.count("--moe-router-num-groups", 1),
        "topk_group": arguments.count("--moe-router-group-topk", 1), "norm_topk_prob": True,
        "routed_scaling_factor": arguments.real("--moe-router-topk-scaling-factor", 1.0),
        "first_k_dense_replace": dense_layers(arguments, layers), "q_lora_rank": arguments.number("--q-lora-rank"),
        "kv_lora_rank": arguments.count("--kv-lora-rank", 512),
        "qk_nope_head_dim": arguments.count("--qk-head-dim", arguments.count("--qk-nope-head-dim", 128)),
        "qk_rope_head_dim": arguments.count("--qk-pos-emb-head-dim", arguments.count("--qk-rope-head-dim", 64)),
        "v_head_dim": arguments.count("--v-head-dim", 128), "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        "num_nextn_predict_layers": arguments.count("--mtp-num-layers", 0),
    }  # fmt: skip
