"""How published mixtures of experts were set up, release by release, where their tables do not say it.

Facts from Megatron-Bridge's ``scripts/performance/configs`` at commits of 2025-11 to 2026-08 (gpt_oss, qwen, deepseek,
kimi, nemotronh: ``*_workload_base_configs.py``) and what took their place, ``src/megatron/bridge/perf_recipes``, which
has GPT-OSS on B300 set up alike in MXFP8 and bf16; none is adjusted to a result. Before 26.02 experts exchanged by
NCCL's all-to-all. HybridEP came then, with attention, router and what prepares experts as CUDA graphs; in 26.06 one
graph for the whole iteration in MXFP8, exchanges beside the other micro-batch's products, nothing computed again, and
one kernel for all products of a rank's experts with their activation (cuDNN's grouped MLP;
``megatron_fused_experts.py``), some with attention in FP8 (`presim_study.fp8_attention`: Megatron-core 0.16.1 has
it with other recipes than MXFP8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from presim.studies.validation.cases import Case
from presim_study.models import plain_name

Rules = Mapping[str, tuple[tuple[str, str], ...]]  # model -> (GPU, precision); each by how it begins

_HYBRID: Rules = {  # since 26.02
    "nemotron3nano": (("", ""),),
    "nemotron3super": (("", ""),),
    "nemotron3ultra": (("", ""),),
    "nemotron35lightning": (("", ""),),
    "qwen330ba3b": (("gb", ""), ("b200", ""), ("b300", "")),
    "qwen3235ba22b": (("gb", ""),),
    "gptoss120b": (("b300", ""), ("gb200", "mx"), ("gb300", "mx")),
    "deepseekv3": (("", ""),),
    "kimik2": (("gb", ""),),
}
_SUPER_GRAPHED = (("gb", ""), ("b300", ""))
_MAMBA_GRAPHED: Rules = {  # since 26.02: layers of Mamba are CUDA graphs
    "nemotron3nano": (("", ""),),
    "nemotron35lightning": (("gb", ""),),
    "nemotron3super": _SUPER_GRAPHED,
}
_ROUTER_GRAPHED: Rules = {  # since 26.02: router and what prepares experts are
    "nemotron3nano": (("gb", ""), ("b200", ""), ("b300", "")),
    "nemotron35lightning": (("gb", ""),),
    "nemotron3super": _SUPER_GRAPHED,
    "qwen330ba3b": (("gb", ""), ("b200", ""), ("b300", "")),
    "qwen3235ba22b": (("gb", ""),),
    "gptoss120b": (("b300", ""), ("gb300", "")),
    "deepseekv3": (("gb", ""), ("b300", "")),
    "kimik2": (
        ("gb200", ""),
    ),  # on GB300 nothing is: Bridge's own recipe has no graphs, and that of the benchmark sets none
}
_ATTENTION_GRAPHED: Rules = {  # and attention
    **_ROUTER_GRAPHED,
    "nemotron3nano": (*_ROUTER_GRAPHED["nemotron3nano"], ("h100", "bf16")),
    "qwen330ba3b": (("gb200", "bf16"), ("gb200", "fp8"), ("b200", "")),
    "kimik2": (),
}
_WHOLE: Rules = {  # since 26.06: the iteration is one graph
    "qwen330ba3b": (("gb200", "mx"), ("gb300", "mx")),
    "gptoss120b": (("gb200", "mx"), ("gb300", "mx")),
    "deepseekv3": (("gb200", "mx"), ("gb300", "mx"), ("b300", "mx")),
}
_FUSED: Rules = {  # since 26.06: products and activation of experts are one kernel
    "qwen330ba3b": (("gb200", "mx"), ("gb300", "mx")),
    "gptoss120b": (("gb200", "mx"), ("gb300", "mx")),
    "deepseekv3": (("gb200", "mx"), ("gb300", "mx"), ("b300", "mx")),
}
_OVERLAPPED_BEFORE: Rules = {  # and these before 26.06; in pipelines all of them with virtual stages only
    "qwen3235ba22b": (("h100", ""), ("b300", "")),
    "deepseekv3": (("h100", "fp8"), ("b200", "mx")),
}
_OVERLAPPED: Rules = {  # since 26.06: exchanges overlap
    "qwen330ba3b": (("gb200", "mx"), ("gb300", "mx")),
    "gptoss120b": (("gb200", "mx"), ("gb300", "mx")),
    "deepseekv3": (("gb300", "mx"), ("b300", "mx")),
}
_FP8_ATTENTION: Rules = {  # since 26.06
    "gptoss120b": (("gb", "mx"),),
    "deepseekv3": (("gb300", "mx"), ("b300", "mx")),
}
_KEEPS_ALL: Rules = {  # since 26.06: nothing is computed again
    "gptoss120b": (("gb", "mx"),),
}  # DeepSeek-V3 on GB300 neither, but it does not fit so without the kernels below

# In all releases; Nemotron's recipes turn it off, but Ultra's.
_FUSED_ROUTER = ("gptoss", "qwen3", "deepseekv3", "kimik2", "nemotron3ultra")

_HOST = 8  # GPUs of a host of Bridge's tables but for racks

# Modules, and their classes: those are the scopes where layers of two micro-batches run beside each other.
_MAMBA = ("mixer",)
_ROUTER = ("pre_mlp_layernorm", "router", "TopKRouter")
_ATTENTION = ("input_layernorm", "self_attention", "SelfAttention", "MLASelfAttention")


def spread(case: Case) -> Case:
    """GPT-OSS on B200 in 25.11, whose row has H100's experts per GPU, rounds and micro-batch, over all of its hosts.

    So it is in its configurations (``gpt_oss/workload_base_configs.py`` of 2025-11) and in the next release's table.
    """
    is_one = plain_name(case).startswith("gptoss120b") and case.text("gpu").upper().startswith("B200")
    return Case({**case.row, "ep": case.text("n_gpus")}) if is_one and (0, 0) < release_of(case) < (26, 2) else case


def spreads_over_hosts(case: Case, gpu: str) -> bool:
    """DeepSeek-V3's set-up on B200 in MXFP8 with experts over four hosts: DeepEP, graphs, MLPs computed again."""
    is_model = plain_name(case).startswith("deepseekv3") and "mx" in case.text("precision").lower()
    return is_model and gpu == "b200" and case.count("ep", 1) > _HOST and release_of(case) >= (26, 2)


def release_of(case: Case) -> tuple[int, int]:
    """Megatron-Bridge's container as (year, month); (0, 0) for others."""
    found = re.match(r"(\d\d)\.(\d\d)", case.text("framework_version") or case.text("date"))
    is_bridge = "bridge" in case.text("framework").lower()
    return (int(found[1]), int(found[2])) if found and is_bridge else (0, 0)


def _holds(rules: Rules, case: Case, gpu: str, since: tuple[int, int]) -> bool:
    name, precision = plain_name(case), case.text("precision").lower()
    fits = (pairs for model, pairs in rules.items() if name.startswith(model))
    precision = "mx" if "mx" in precision else precision
    said = any(gpu.startswith(chip) and precision.startswith(kind) for pairs in fits for chip, kind in pairs)
    return said and release_of(case) >= since


def exchange_fields(case: Case, gpu: str) -> dict[str, object]:
    """Fields of TransformerConfig that a release set; none where the case is no such run."""
    fields: dict[str, object] = {}
    # H100: 26.04 spread Qwen3 30B's experts over two hosts and took HybridEP for it
    two_hosts = plain_name(case).startswith("qwen330ba3b") and gpu == "h100-sxm" and case.count("ep", 1) == 16
    # B300: 26.02 spread GPT-OSS over eight hosts and took NCCL for it
    all_hosts = plain_name(case).startswith("gptoss") and gpu == "b300" and case.count("ep", 1) > _HOST
    hybrid = _holds(_HYBRID, case, gpu, (26, 2)) and not all_hosts
    if hybrid or (two_hosts and release_of(case) >= (26, 2)):
        fields |= {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"}
        fields["moe_hybridep_num_sms"] = 32  # scripts/performance/utils/overrides.py
        fields["moe_shared_expert_overlap"] = False  # Megatron's flexible dispatcher has no place for it
    if spreads_over_hosts(case, gpu):
        fields["moe_flex_dispatcher_backend"] = "deepep"
        del fields["moe_hybridep_num_sms"]
    overlaps = _holds(_OVERLAPPED, case, gpu, (26, 6)) or _holds(_OVERLAPPED_BEFORE, case, gpu, (25, 9))
    if overlaps and (case.count("pp", 1) == 1 or case.count("vp", 1) > 1):
        fields |= {"overlap_moe_expert_parallel_comm": True, "delay_wgrad_compute": True}
        fields["moe_shared_expert_overlap"] = False
    return fields


def keeps_all(case: Case, gpu: str) -> bool:
    """Nothing is computed again in the backward pass."""
    return _holds(_KEEPS_ALL, case, gpu, (26, 6))


def attends_in_fp8(case: Case, gpu: str) -> bool:
    """Attention multiplies in FP8."""
    return _holds(_FP8_ATTENTION, case, gpu, (26, 6))


def fuses_experts(case: Case, gpu: str) -> bool:
    """Products of a rank's experts and what is between them are one kernel."""
    return _holds(_FUSED, case, gpu, (26, 6))


def fuses_router(case: Case) -> bool:
    """One kernel chooses experts (``moe_router_fusion``)."""
    return release_of(case) > (0, 0) and plain_name(case).startswith(_FUSED_ROUTER)


def is_one_graph(case: Case, gpu: str) -> bool:
    """The whole iteration is one CUDA graph: no kernel waits for the host."""
    return _holds(_WHOLE, case, gpu, (26, 6))


def counts_on_the_host(case: Case) -> bool:
    """The host reads how many tokens go to each expert, in each layer: no graph can hold that.

    So it was before 26.02 where no tokens were dropped.
    """
    early = (0, 0) < release_of(case) < (26, 2)
    return early and not plain_name(case).startswith("llama") and "tokendrop" not in case.text("model")


def graphed_modules(case: Case, gpu: str) -> tuple[str, ...]:
    """Modules whose kernels CUDA graphs launched, so that the host had the rest left to do."""
    if is_one_graph(case, gpu):
        return ()
    spread = spreads_over_hosts(case, gpu)
    router = _ROUTER if spread or _holds(_ROUTER_GRAPHED, case, gpu, (26, 2)) else ()
    attention = _ATTENTION if spread or _holds(_ATTENTION_GRAPHED, case, gpu, (26, 2)) else ()
    mamba = _MAMBA if _holds(_MAMBA_GRAPHED, case, gpu, (26, 2)) else ()
    return (*mamba, *attention, *router)
