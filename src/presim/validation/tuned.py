"""How published benchmarks of Megatron's family were set up where their tables do not say it.

Facts from the recipes that the tables point at: Megatron-Bridge, ``scripts/performance/configs`` and
``src/megatron/bridge/recipes`` (2025-11 to 2026-08), NeMo's ``performance_summary``, and MLPerf Training's rules for
the LoRA benchmark. Where releases differ, the latest; none is adjusted to a result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from presim.validation.cases import Case

_MLPERF = "training_results"


@dataclasses.dataclass(frozen=True)
class Adapters:
    """LoRA: the rank, and the linear layers that have one."""

    rank: int
    targets: tuple[str, ...]


def is_tuned(case: Case) -> bool:
    """Published by those who tune the framework: what communicates is overlapped, gradients are summed in bf16."""
    names = ("bridge", "nemo", "nvidia release", "ngc", "nvidia pytorch")
    return any(name in case.text("framework").lower() for name in names) or _MLPERF in case.text("source")


def adapters(case: Case) -> Adapters | None:
    """MLPerf's have rank 16 on all of attention; NeMo's and Bridge's performance recipes on the joint projection."""
    if "lora" not in f"{case.text('model')} {case.text('sharding')}".lower():
        return None
    return Adapters(16, ("linear_qkv", "linear_proj") if _MLPERF in case.text("source") else ("linear_qkv",))


_RECOMPUTED: Mapping[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    # model -> (GPU, precision, what each layer computes again); the first that begins so; "" is any
    "deepseekv3": (
        ("h100", "", ("mla_up_proj", "mlp")),
        ("gb300", "bf16", ("moe_act",)),
        ("", "", ("mla_up_proj",)),
    ),
    "kimik2": (("h100", "", ("mla_up_proj", "mlp")), ("", "", ("mla_up_proj",))),
    "gptoss120b": (
        ("h100", "", ("layernorm", "moe_act")),
        ("b200", "", ("layernorm", "moe_act")),
        ("gb200", "bf16", ("layernorm", "moe_act")),
    ),
}


def recomputed(model: str, gpu: str, precision: str) -> tuple[str, ...]:
    """What each layer of a published benchmark computes again in its backward pass."""
    rules = next((rules for name, rules in _RECOMPUTED.items() if model.startswith(name)), ())
    for chip, format_, modules in rules:
        if gpu.startswith(chip) and precision.lower().startswith(format_):
            return modules
    return ()


def whole_graph(model: str, gpu: str, precision: str) -> bool:
    """The whole iteration is one CUDA graph: no kernel waits for the host.

    So are Llama 3 8B's on Blackwell, and with MXFP8 DeepSeek-V3's and GPT-OSS' on GB200 and GB300.
    """
    text = precision.lower()
    if model == "llama38b":
        return gpu in ("b200", "b300", "gb200", "gb300") and "fp4" not in text
    return model.startswith(("deepseekv3", "gptoss120b")) and gpu in ("gb200", "gb300") and "mx" in text


def pipeline_layout(layers: int, stages: int, predictors: int) -> str:
    """Layers in stages that they do not fill: as many in each from the front, what is left beside the loss.

    E is the embedding, t a layer, m a layer that predicts a second token, L the loss. This gives Bridge's layouts of
    DeepSeek-V3 and Kimi K2: 16 stages are ``Et*4|(t*4|)*14tmL``, 32 are ``Et|(tt|)*30mL``.
    """
    each = -(-layers // stages)
    left = layers - each * (stages - 1)
    if left + each < 0:  # the front would take more than there is
        even, more = divmod(layers, stages)
        counts = [even + (stage < more) for stage in range(stages)]
    else:
        counts = [each + min(left, 0), *[each] * (stages - 2), max(left, 0)]
    parts = ["t" * count for count in counts]
    return "|".join(["E" + parts[0], *parts[1:-1], parts[-1] + "m" * predictors + "L"])
