"""What a case says of adapters: rank, alpha and beside which linear layers, in its model's brackets or in ``other``."""

from __future__ import annotations

import dataclasses
import re

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.plan import options

_QUANTIZED = re.compile(r"qlora|\bnf4|\b[48][- ]?bits?\b|\bint[48]\b|\bbnb\b|bitsandbytes|load_in_[48]")
_OTHERS = re.compile(r"\b(dora|lora-fa|ia3|vera|adalora|prefix[- ]tuning|prompt[- ]tuning|adapter_v2|oft|rslora)\b")
_LAYERS = {  # as tables write them -> as Hugging Face's models call them
    **{name: f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")},
    **{name: name for name in ("c_attn", "c_proj", "c_fc", "fc1", "fc2", "out_proj")},
}
_ATTENTION, _MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


@dataclasses.dataclass(frozen=True)
class Adapters:
    """Low-rank ones; what is not said is for PEFT to choose."""

    rank: int
    alpha: int | None
    targets: str | None  # names with commas between, or all-linear

    def options(self) -> tuple[str, ...]:
        """Of the recipes that have adapters."""
        return options(lora=self.rank, lora_alpha=self.alpha, lora_targets=self.targets)


def adapters_of(case: Case) -> Adapters | None:
    """None where all weights are trained. The rank is PEFT's default of 8 where none is given.

    Raises:
        CannotBuildError: weights are kept in 4 or 8 bits, the method is another than LoRA, or a layer is not known.
    """
    said = f"{case.text('model')}; {case.text('other')}; {case.text('framework')}".lower()
    if _QUANTIZED.search(f"{said}; {case.precision()}"):
        raise CannotBuildError("the recipe has no weights in four or eight bits")
    if other := _OTHERS.search(said):
        raise CannotBuildError(f"the recipe's adapters are LoRA's, and the case's are {other[1]}")
    if "lora" not in said:
        return None
    rank = re.search(r"(?:\b|_)(?:rank|r)\s*[=:]?\s*(\d+)\b", said)
    alpha = re.search(r"(?:\b|_)alpha\s*[=:]?\s*(\d+)\b", said)
    targets = re.search(r"\btarget(?:s|(?:ed)?[ _-](?:modules|layers))?\s*[=:]?\s*([^;\])]+)", said)
    return Adapters(
        int(rank[1]) if rank else 8,
        int(alpha[1]) if alpha else None,
        _targets(targets[1].strip()) if targets else None,
    )


def _targets(said: str) -> str:
    """``q,v``, ``q_proj v_proj``, ``attention``, ``all-linear``, with commas between."""
    if re.match(r"all\b", said):
        return "all-linear"
    names: list[str] = []
    for word in filter(None, re.split(r"[\s,+/&'\"\[]+|\band\b", said)):
        if word in ("attention", "attn", "mlp", "ffn"):
            names += _ATTENTION if word.startswith("att") else _MLP
        elif (name := _LAYERS.get(word.removesuffix("_proj"), _LAYERS.get(word))) is not None:
            names.append(name)
        else:
            raise CannotBuildError(f"the recipe knows no layers {word!r} to put adapters beside")
    return ",".join(names)
