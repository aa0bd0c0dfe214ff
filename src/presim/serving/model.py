"""A model's shape, read from the ``config.json`` published with its weights."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from presim.errors import InputError
from presim.files import (
    FormatError,
    decode_foreign_json,
    decode_toml,
    names_file,
    names_folder,
    read_bytes,
    read_text,
    shortened,
)

_TABLE = Path(__file__).parent / "data" / "models.toml"
_MOST = 1 << 31  # largest number accepted in a config
_NOT_READ = {  # parts of models that serving does not model
    "mamba_d_state": "Mamba layers",
    "vision_config": "a vision encoder",
}


Checkpoint = Literal["bf16", "fp8", "fp8-block", "mxfp4"]


@dataclasses.dataclass(frozen=True)
class Latent:
    """DeepSeek's multi-head latent attention."""

    query_rank: int  # 0: queries are not compressed
    rank: int
    nope: int
    rope: int
    value: int


@dataclasses.dataclass(frozen=True)
class Indexer:
    """Sparse attention: an indexer scores all keys of a query, which attends to those with the highest scores."""

    heads: int
    dim: int  # of a head, and of the one key for all heads
    keys: int  # keys that a query attends to


@dataclasses.dataclass(frozen=True)
class Recurrent:
    """Gated delta nets in place of attention in all layers but every ``every``-th (Qwen3-Next, Qwen3.5)."""

    every: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    @property
    def mixed(self) -> int:
        """Elements of a token's queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_bytes(self) -> int:
        """State of one sequence in one layer, in 32 bits as vLLM and SGLang keep it."""
        return 4 * self.value_heads * self.key_dim * self.value_dim


@dataclasses.dataclass(frozen=True)
class Experts:
    """A mixture of experts."""

    count: int
    chosen: int
    width: int
    shared_width: int = 0
    dense_layers: int = 0  # leading layers with a dense feed-forward


@dataclasses.dataclass(frozen=True)
class Model:
    """A decoder."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int  # width of a dense layer's feed-forward
    vocabulary: int
    longest: int
    tied: bool = False
    window: int = 0  # sliding window of every second layer, in tokens; 0: full attention everywhere
    experts: Experts | None = None
    latent: Latent | None = None
    indexer: Indexer | None = None
    recurrent: Recurrent | None = None
    gated: bool = False  # attention's output is multiplied by a gate, which is projected with the queries
    # queries and keys are normalised over all heads, so ranks all-reduce their sums of squares
    whole_norms: bool = False
    checkpoint: Checkpoint = "bf16"  # weight type of its published checkpoint
    not_modelled: tuple[str, ...] = ()

    @property
    def attention_parameters(self) -> int:
        """Attention parameters of one layer, on average."""
        if self.latent is None:
            full = self.hidden * self.head_dim * ((3 if self.gated else 2) * self.heads + 2 * self.kv_heads)
            nets = self.recurrent
            if nets is None:
                return full
            wide = nets.value_heads * nets.value_dim
            each = self.hidden * (nets.mixed + 2 * wide + 2 * nets.value_heads)
            return (full + (nets.every - 1) * each) // nets.every
        latent = self.latent
        query_in = latent.query_rank or self.hidden
        down = self.hidden * (latent.query_rank + latent.rank + latent.rope)
        if self.indexer is not None:
            heads, dim = self.indexer.heads, self.indexer.dim
            down += query_in * heads * dim + self.hidden * (dim + heads)
        up = query_in * self.heads * (latent.nope + latent.rope) + latent.rank * self.heads * (
            latent.nope + latent.value
        )
        return down + up + self.heads * latent.value * self.hidden

    @property
    def expert_parameters(self) -> int:
        """Parameters of the routed experts of all layers."""
        if self.experts is None:
            return 0
        return (self.layers - self.experts.dense_layers) * self.experts.count * 3 * self.hidden * self.experts.width

    @property
    def dense_parameters(self) -> int:
        """Parameters outside routed experts and embeddings."""
        experts = self.experts
        plain = self.layers if experts is None else experts.dense_layers
        total = self.layers * (self.attention_parameters + 2 * self.hidden) + plain * 3 * self.hidden * self.width
        if experts is not None:
            beside = 3 * self.hidden * experts.shared_width + self.hidden * experts.count
            total += (self.layers - plain) * beside
        return total

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding and the output layer."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def kv_elements(self) -> int:
        """KV-cache elements per token and layer, on average."""
        if self.latent is not None:
            return self.latent.rank + self.latent.rope + (self.indexer.dim if self.indexer else 0)
        return 2 * self.kv_heads * self.head_dim // (self.recurrent.every if self.recurrent else 1)


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    tables = decode_toml(read_text(_TABLE, "install presim again"))
    return {_plain(name): {**table, "id": key} for key, table in tables.items() for name in (key, *table["names"])}


def _plain(name: str) -> str:
    """A normalised name: llama-3-8b becomes llama3-8b."""
    return name.lower().replace("llama-", "llama")


def names() -> list[str]:
    """Models with a built-in shape."""
    return sorted({str(table["id"]) for table in _table().values()})


def find(word: str) -> Model:
    """Find a model by name, by ``config.json``, or by a folder that contains one."""
    return from_config(*config_of(word))


def config_of(word: str) -> tuple[dict[str, Any], str]:
    """The config that a word means, with the model's name; a known name's has only the keys that change a step."""
    if (table := _table().get(_plain(word))) is not None:
        return {key: value for key, value in table.items() if key not in ("id", "names")}, str(table["id"])
    path = Path(word)
    path = path / "config.json" if names_folder(path) else path
    if names_file(path):
        try:
            config = decode_foreign_json(read_bytes(path, "give a model's config.json"))
        except FormatError as error:
            raise InputError(f"{path} is not valid JSON ({error}); give a model's config.json") from error
        return config, path.parent.name or str(path)
    near = difflib.get_close_matches(_plain(word), names(), 3)
    raise InputError(
        f"unknown model {shortened(word)!r}"
        + (f"; did you mean {' or '.join(near)}?" if near else ".")
        + f" Known models: {', '.join(names())}; for another model, give its config.json"
    )


def from_config(config: Mapping[str, Any], name: str) -> Model:
    """Build a model from a Hugging Face config."""
    text = config.get("text_config", config) if isinstance(config, Mapping) else None
    if not isinstance(text, Mapping):
        raise InputError(f"the config of {name} is not a JSON object; give a decoder's config.json")

    def number(*keys: str, default: int | None = None) -> int:
        key = next((key for key in keys if text.get(key) is not None), keys[0])
        found = text.get(key)
        if found is None and default is not None:
            return default
        if not isinstance(found, int) or isinstance(found, bool):
            raise InputError(f"the config of {name} has no {key}; give a decoder's config.json")
        if not (0 if default == 0 else 1) <= found <= _MOST:
            raise InputError(f"the config of {name} has {key} = {found}; it must be from 1 to {_MOST:,}")
        return found

    hidden, heads = number("hidden_size"), number("num_attention_heads")
    latent = None
    if text.get("kv_lora_rank"):
        latent = Latent(
            *(number("q_lora_rank", default=0), number("kv_lora_rank"), number("qk_nope_head_dim")),
            *(number("qk_rope_head_dim"), number("v_head_dim")),
        )
    alternates = text.get("model_type") == "gpt_oss" or "layer_types" in text
    if hidden < heads and text.get("head_dim") is None:
        raise InputError(
            f"the config of {name} has {heads} heads for a hidden size of {hidden}; give a decoder's config.json"
        )
    return Model(
        name=name,
        layers=number("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=number("num_key_value_heads", default=heads),
        head_dim=number("head_dim", default=hidden // heads),
        width=number("intermediate_size"),
        vocabulary=number("vocab_size"),
        longest=number("max_position_embeddings", default=131072),
        tied=bool(text.get("tie_word_embeddings", False)),
        window=number("sliding_window", default=0) if alternates else 0,
        experts=_experts(text, number),
        latent=latent,
        indexer=_indexer(number),
        recurrent=_recurrent(number),
        gated=bool(text.get("attn_output_gate", number("linear_num_value_heads", default=0))),
        whole_norms=text.get("qk_norm_type") == "per_layer",
        checkpoint=_checkpoint(_object(text, "quantization_config") or _object(config, "quantization_config")),
        not_modelled=tuple(f"{part} of {name}" for key, part in _NOT_READ.items() if text.get(key) or config.get(key)),
    )


def _object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = config.get(key)
    return found if isinstance(found, Mapping) else {}


def _checkpoint(quantization: Mapping[str, Any]) -> Checkpoint:
    """Weight type of the checkpoint; mxfp4 applies to experts only. Other quantisation methods count as 16 bits."""
    method = quantization.get("quant_method")
    if method == "fp8":
        return "fp8-block" if quantization.get("weight_block_size") else "fp8"
    return "mxfp4" if method == "mxfp4" else "bf16"


def _indexer(number: Any) -> Indexer | None:
    keys = number("index_topk", default=0)
    return Indexer(number("index_n_heads"), number("index_head_dim"), keys) if keys else None


def _recurrent(number: Any) -> Recurrent | None:
    values = number("linear_num_value_heads", default=0)
    if not values:
        return None
    return Recurrent(
        number("full_attention_interval", default=4),
        number("linear_num_key_heads"),
        values,
        number("linear_key_head_dim"),
        number("linear_value_head_dim"),
    )


def _experts(text: Mapping[str, Any], number: Any) -> Experts | None:
    count = number("n_routed_experts", "num_local_experts", "num_experts", default=0)
    if count < 2:
        return None
    width = number("moe_intermediate_size", "intermediate_size")
    shared = number("shared_expert_intermediate_size", default=0) or number("n_shared_experts", default=0) * width
    return Experts(count, number("num_experts_per_tok"), width, shared, number("first_k_dense_replace", default=0))
