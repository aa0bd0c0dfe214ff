"""Shapes of models: from the cells of a case, or by the published name where a table only names them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from presim.validation import dense_models
from presim.validation.cases import CannotBuildError, Case


@dataclasses.dataclass(frozen=True)
class Shapes:
    """A decoder as Megatron's recipe takes it; ``fields`` are those of TransformerConfig."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    style: str = "llama"  # llama: RMSNorm, SwiGLU, no biases; gpt: LayerNorm, GELU, biases; gpt-oss: its own
    tied: bool = False
    positions: str = "rope"
    fields: Mapping[str, object] = dataclasses.field(default_factory=dict)


def experts(count: int, top: int, ffn: int, **fields: object) -> dict[str, object]:
    """Fields of a Mixture of Experts as its published benchmarks run it: tokens spread evenly by force."""
    return {
        "num_moe_experts": count,
        "moe_router_topk": top,
        "moe_ffn_hidden_size": ffn,
        "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_load_balancing_type": "none",
        "moe_router_force_load_balancing": True,
        "moe_permute_fusion": True,
        **fields,
    }


_LATENT = {  # DeepSeek's attention
    "multi_latent_attention": True,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64,
    "v_head_dim": 128,
    "qk_layernorm": True,
}
_SIGMOID = {  # its router, and the shared expert that runs beside the exchange
    "moe_router_score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "moe_router_dtype": "fp32",
    "moe_shared_expert_overlap": True,
}
_DROPPING = {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}
_NORMALISED_HEADS = {"kv_channels": 128, "qk_layernorm": True}
_PLAIN = {"add_bias_linear": False, "hidden_dropout": 0.0, "attention_dropout": 0.0}
_OSS = {"kv_channels": 64, "window_size": (128, 0), "window_attn_skip_freq": 2}  # every second layer sees 128 tokens

# Each from the configuration that was published with the weights (config.json on the model's page).
_PUBLISHED = {
    "deepseekv3": Shapes(
        *(61, 7168, 18432, 128, 128, 129280),
        fields={
            **_LATENT,
            **experts(256, 8, 2048, moe_shared_expert_intermediate_size=2048, moe_layer_freq=[0] * 3 + [1] * 58),
            **_SIGMOID,
            "mtp_num_layers": 1,
        },
    ),
    "kimik2": Shapes(
        *(61, 7168, 18432, 64, 64, 163840),
        fields={
            **_LATENT,
            **experts(384, 8, 2048, moe_shared_expert_intermediate_size=2048, moe_layer_freq=[0] + [1] * 60),
            **_SIGMOID,
        },
    ),
    "qwen330ba3b": Shapes(
        48, 2048, 6144, 32, 4, 151936, fields={"kv_channels": 128, "qk_layernorm": True, **experts(128, 8, 768)}
    ),
    "qwen3235ba22b": Shapes(
        94, 4096, 12288, 64, 4, 151936, fields={"kv_channels": 128, "qk_layernorm": True, **experts(128, 8, 1536)}
    ),
    "gptoss120b": Shapes(36, 2880, 2880, 64, 8, 201088, "gpt-oss", fields={**_OSS, **experts(128, 4, 2880)}),
    "gptoss20b": Shapes(24, 2880, 2880, 64, 8, 201088, "gpt-oss", fields={**_OSS, **experts(32, 4, 2880)}),
    "deepseekv2lite": Shapes(
        *(27, 2048, 10944, 16, 16, 102400),
        fields={
            **_LATENT,
            "q_lora_rank": None,
            **experts(64, 6, 1408, moe_shared_expert_intermediate_size=2816, moe_layer_freq=[0] + [1] * 26),
        },
    ),
    "deepseekv2": Shapes(
        *(60, 5120, 12288, 128, 128, 102400),
        fields={
            **_LATENT,
            **experts(160, 6, 1536, moe_shared_expert_intermediate_size=3072, moe_layer_freq=[0] + [1] * 59),
        },
    ),
    "moonlight16b": Shapes(
        *(27, 2048, 11264, 16, 16, 163840),
        fields={
            **_LATENT,
            "q_lora_rank": None,
            **experts(64, 6, 1408, moe_shared_expert_intermediate_size=2816, moe_layer_freq=[0] + [1] * 26),
            **_SIGMOID,
        },
    ),
    "llama4scout": Shapes(
        *(48, 5120, 16384, 40, 8, 202048),
        fields=experts(16, 1, 8192, moe_shared_expert_intermediate_size=8192, moe_router_pre_softmax=True),
    ),
    # NVIDIA-NeMo's pretrain_grok1_314b.py: tokens beyond an expert's even share are dropped, its rows filled up to it
    "grok1": Shapes(64, 6144, 32768, 48, 8, 131072, fields=experts(8, 2, 32768, **_DROPPING)),
    "llama4maverick": Shapes(
        *(48, 5120, 16384, 40, 8, 202048),
        fields=experts(
            128,
            1,
            8192,
            moe_shared_expert_intermediate_size=8192,
            moe_layer_freq=[0, 1] * 24,
            moe_router_pre_softmax=True,
        ),
    ),
    **{name: Shapes(*sizes) for name, sizes in dense_models.LLAMAS.items()},
    **{name: Shapes(*sizes, fields={"add_qkv_bias": True}) for name, sizes in dense_models.QWENS.items()},
    **{name: Shapes(*sizes, fields=_NORMALISED_HEADS) for name, sizes in dense_models.QWEN3S.items()},
    **{name: Shapes(*sizes, fields=experts(8, 2, sizes[2])) for name, sizes in dense_models.MIXTRALS.items()},
    **{name: Shapes(*sizes, "gpt", fields=_PLAIN) for name, sizes in dense_models.NEMOTRONS.items()},
    **{name: Shapes(*sizes, "gpt", tied=True, positions="learned") for name, sizes in dense_models.GPT3S.items()},
}
UNLIKE = ("deepseekv32",)  # begin as a model that is known, and are another
_SHORT = (  # ways to write a name -> how it is written here
    (r"^qwen3moe", "qwen3"),
    (r"^qwen330b(?!a3b)(a3|3a)?", "qwen330ba3b"),
    (r"^qwen3235b(?!a22b)(a22)?", "qwen3235ba22b"),
    (r"^nemotronv3", "nemotron3"),
)
_OWNERS = ("metallama/", "meta", "nvidia/", "mistralai/", "qwen/", "openai/", "deepseekai/")


def plain_name(case: Case) -> str:
    """The model's name in small letters and digits, without owner and brackets: ``llama38b``, ``gptoss120b``."""
    name = re.split(r" ?[(\[]", case.text("model").lower())[0]
    name = "".join(letter for letter in name if letter.isalnum() or letter == "/")
    for owner in _OWNERS:
        name = name.removeprefix(owner)
    name = name.replace("/", "")
    for written, known in _SHORT:
        name = re.sub(written, known, name)
    return name + "whole" if re.search(r"gpt-?3[ _-]13b", case.text("model").lower()) else name


def published_shapes(case: Case) -> Shapes:
    """What the case's cells say, else what its model is known to be.

    Raises:
        CannotBuildError: the cells are empty and the name is not known.
    """
    if case.text("n_layers") and case.text("n_heads"):
        return _from_cells(case)
    name = plain_name(case)
    keys = [key for key in _PUBLISHED if name.startswith(key) and not name.startswith(UNLIKE)]
    known = _PUBLISHED[max(keys, key=len)] if keys else None
    if known is None:
        raise CannotBuildError(f"neither n_layers is given nor are the shapes of {case.text('model')!r} known here")
    if "tokendrop" not in case.text("model"):
        return known
    return dataclasses.replace(known, fields={**known.fields, **_DROPPING})


def _from_cells(case: Case) -> Shapes:
    heads, hidden = case.count("n_heads"), case.count("hidden")
    other = case.text("other")
    said = {part.split("=")[0].strip(): part.partition("=")[2] for part in other.split(";")}
    llama = any(name in case.text("model").lower() for name in ("llama", "deepseek", "qwen", "mixtral"))
    rotary = llama or "rope" in case.text("model") or said.get("position-embedding-type") == "rope"
    return Shapes(
        layers=case.count("n_layers"),
        hidden=hidden,
        ffn=case.count("ffn", _default_ffn(hidden, gated=llama or "swiglu" in said)),
        heads=heads,
        kv_heads=case.count("n_kv_heads", heads),
        vocab=case.count("vocab", 50257),  # GPT-2's, Megatron's own default
        style="llama" if llama else "gpt",
        tied=not llama and "untie-embeddings-and-output-weights" not in said,
        positions="rope" if rotary else "learned",
        fields=_experts_of(case, said),
    )


def _default_ffn(hidden: int, *, gated: bool) -> int:
    """Megatron's: four times the hidden size, two thirds of that in multiples of 64 where it is gated."""
    return int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden


def _experts_of(case: Case, said: Mapping[str, str]) -> dict[str, object]:
    """Fields of the case's experts, none where it is dense."""
    count = case.count("n_experts", 0)
    if count <= 1:
        return {}
    fields: dict[str, object] = {
        "num_moe_experts": count,
        "moe_router_topk": case.count("topk", 2),
        "moe_grouped_gemm": "moe-grouped-gemm" in said,
        "moe_router_pre_softmax": case.count("topk", 2) == 1,  # Megatron refuses to choose one expert otherwise
        "moe_token_dispatcher_type": said.get("moe-token-dispatcher-type", "allgather"),
    }
    fields |= _experts_in_words(case)
    if said.get("moe-ffn-hidden-size"):
        fields["moe_ffn_hidden_size"] = int(said["moe-ffn-hidden-size"])
    if frequency := said.get("moe-layer-freq"):  # ([0]*3+[1]*12): three dense layers, then twelve of experts
        parts = re.findall(r"\[(\d)\]\*(\d+)", frequency)
        fields["moe_layer_freq"] = [int(kind) for kind, count in parts for _ in range(int(count))]
    if said.get("moe-shared-expert-intermediate-size"):
        fields["moe_shared_expert_intermediate_size"] = int(said["moe-shared-expert-intermediate-size"])
    return fields


def _experts_in_words(case: Case) -> dict[str, object]:
    """What SimuMax's rows say of DeepSeek's layers: ``alltoall dispatcher, moe_ffn 1536/2048, 1 dense layer``."""
    other = case.text("other")
    fields: dict[str, object] = {}
    if "alltoall dispatcher" in other:
        fields |= {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True}
    if sizes := re.search(r"moe_ffn (\d+)/(\d+)", other):
        fields |= {
            "moe_ffn_hidden_size": int(sizes[1]),
            "moe_shared_expert_intermediate_size": int(sizes[2]),
        }
    if dense := re.search(r"(\d+) dense layer", other):
        fields["moe_layer_freq"] = [0] * int(dense[1]) + [1] * (case.count("n_layers") - int(dense[1]))
    if "capacity factor 1 padded" in other:
        fields |= _DROPPING
    return fields | (_LATENT if "MLA" in other else {})
