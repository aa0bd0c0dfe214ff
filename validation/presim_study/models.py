"""Shapes of models: from the cells of a case, or by the published name where a table only names them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.named_models import DROPPING, LATENT, PUBLISHED, Shapes

_LACKING = {  # how names begin -> what such a model has and the recipes have not
    "deepseekv32": "attention to chosen tokens",
    "deepseekv4": "attention to compressed tokens",
    "qwen3next": "gated delta nets",
    "qwen35": "gated delta nets",
    "qwen36": "gated delta nets",
    "qwen3vl": "images",
    "qwen25vl": "images",
    "qwen2vl": "images",
    "kimik25": "images",
    "kimivl": "images",
    "glm45v": "images",
    "phi4multimodal": "images",
    "llama3211b": "images",
    "llama3290b": "images",
    "gemma22b": "capped scores of attention",
    "gemma29b": "capped scores of attention",
    "gemma227b": "capped scores of attention",
    "gemma3": "norms behind attention and MLP",
}
UNLIKE = tuple(_LACKING)  # some begin as a model that is known, and are another
_SHORT = (  # ways to write a name -> how it is written here
    (r"^qwen3moe", "qwen3"),
    (r"^qwen330b(?!a3b)(a3|3a)?", "qwen330ba3b"),
    (r"^qwen3235b(?!a22b)(a22)?", "qwen3235ba22b"),
    (r"^nemotronv3", "nemotron3"),
    (r"^nemotronnanov2(9b|12b)", r"nemotronnano\1v2"),
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
    known = _known(case)
    if case.text("n_layers") and case.text("n_heads"):
        return known if known and _agrees(case, known) else _from_cells(case)
    if known is None:
        raise unknown_model(case)
    return known


def published_key(case: Case) -> str | None:
    """What the case's model is called in `named_models`, whatever stands behind its name; None: it is not there."""
    name = plain_name(case)
    keys = [key for key in PUBLISHED if name.startswith(key) and not name.startswith(UNLIKE)]
    return max(keys, key=len, default=None)


def unknown_model(case: Case) -> CannotBuildError:
    """Why a model that is not in `named_models` cannot be built by its name."""
    lacking = next((words for start, words in _LACKING.items() if plain_name(case).startswith(start)), None)
    if lacking:
        return CannotBuildError(f"{case.text('model')!r} has {lacking}, which the recipes have not")
    return CannotBuildError(f"neither n_layers is given nor are the shapes of {case.text('model')!r} known here")


def _known(case: Case) -> Shapes | None:
    """By the model's name, with what stands in brackets behind it: ``(tokendrop)``, ``(w/o MTP)``."""
    key, said = published_key(case), case.text("model").lower()
    if key is None:
        return None
    known = PUBLISHED[key]
    if re.search(r"(w/o|without|no) mtp", said):
        fields = {name: value for name, value in known.fields.items() if name != "mtp_num_layers"}
        known = dataclasses.replace(known, fields=fields)
    if "tokendrop" in said:
        known = dataclasses.replace(known, fields={**known.fields, **DROPPING})
    return known


def _agrees(case: Case, known: Shapes) -> bool:
    """Whether the cells are those of the model: its width and all of its layers."""
    cells = {"n_layers": known.layers, "hidden": known.hidden, "ffn": known.ffn, "n_heads": known.heads}
    return all(case.count(column, value) == value for column, value in cells.items())


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
        fields |= DROPPING
    return fields | (LATENT if "MLA" in other else {})
