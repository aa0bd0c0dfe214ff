"""How published benchmarks of Megatron's family were set up where their tables do not say it.

Facts from the recipes that the tables point at: Megatron-Bridge, ``scripts/performance/configs`` and
``src/megatron/bridge/recipes`` (2025-11 to 2026-08) and NeMo's ``performance_summary``; of MLPerf's submissions
`mlperf` knows more. Where releases differ, the latest; none is adjusted to a result.
"""

from __future__ import annotations

from collections.abc import Mapping

from presim.studies.validation.cases import Case
from presim_study.megatron_family import mlperf, tuned_experts
from presim_study.models import plain_name


def is_tuned(case: Case) -> bool:
    """Published by those who tune the framework: what communicates is overlapped, gradients are summed in bf16."""
    names = ("bridge", "nemo", "nvidia release", "ngc", "nvidia pytorch")
    return any(name in case.text("framework").lower() for name in names) or mlperf.is_one(case)


def completed(case: Case) -> Case:
    """Rows with what their empty cells follow from, and the micro-batch of those that contradict themselves."""
    if mlperf.is_one(case):
        return mlperf.completed(case)
    return _one_at_a_time(tuned_experts.spread(_sharded(case)))


_ONE_AT_A_TIME = ("llama370b", "gptoss120b")  # what Bridge runs with a micro-batch of one where it has a pipeline


def _one_at_a_time(case: Case) -> Case:
    """Bridge's rows whose cells are of two set-ups: their micro-batches do not make their batch.

    One cell stands for Llama 3 70B with FSDP (two sequences) and in a pipeline; GPT-OSS on H100 has the micro-batch and
    the rounds of B200, where all GPUs are replicas. The configurations have one sequence at a time in either pipeline.
    """
    split = case.count("tp", 1) * case.count("pp", 1) * case.count("cp", 1)
    rounds = case.count("grad_accum", 0) * case.count("micro_batch", 0) * (case.count("n_gpus", 0) // split)
    if "Bridge" not in case.text("framework") or not rounds or rounds == case.count("global_batch", rounds):
        return case
    known = case.count("pp", 1) > 1 and plain_name(case).startswith(_ONE_AT_A_TIME)
    return Case({**case.row, "micro_batch": "1"}) if known else case


_RACK = 64  # GPUs that Bridge's Nemotron 3 Ultra is split over; racks hold the whole of it each


def _sharded(case: Case) -> Case:
    """Bridge's Nemotron 3 Ultra, whose table says nothing of it, by Megatron's FSDP in each rack."""
    is_ultra = "bridge" in case.text("framework").lower() and plain_name(case).startswith("nemotron3ultra")
    if not is_ultra or case.count("tp", 1) > 1:  # Megatron-core 0.16's FSDP does not take a hybrid's split tensors
        return case
    instances = f"num-distributed-optimizer-instances={max(1, case.count('n_gpus', 1) // _RACK)}"
    other = ";".join(part for part in (case.text("other"), instances) if part)
    return Case({**case.row, "sharding": f"FSDP group {_RACK}", "other": other})


def scales_by_current_values(case: Case) -> bool:
    """Plain "FP8" scaled by the tensor's own values: Bridge's, Nemotron-H's, some of MLPerf's."""
    if "Bridge" in case.text("framework") or "nemotron-h" in case.text("model").lower():
        return True
    return mlperf.scales_by_current_values(case)


def defers_memory(case: Case) -> bool:
    """What Megatron's FSDP splits begins without memory: Bridge's ``set_megatron_fsdp_overrides``."""
    return "Bridge" in case.text("framework")


_RECOMPUTED: Mapping[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    # model -> (GPU, precision, what each layer computes again); the first that begins so; "" is any
    "deepseekv3": (
        ("h100", "", ("mla_up_proj", "mlp")),
        ("gb300", "bf16", ("moe_act",)),
        ("", "", ("mla_up_proj",)),
    ),
    "nemotron3nano": (
        ("h100", "fp8", ("moe", "layernorm", "core_attn", "moe_act")),
        ("h100", "bf16", ("moe", "layernorm")),
    ),
    "nemotron3super": (
        ("b200", "bf16", ("moe_act", "moe", "layernorm", "core_attn")),
        ("b200", "", ("moe_act", "layernorm")),
        ("b300", "bf16", ("moe_act", "layernorm")),
        ("b300", "nv", ("moe_act", "layernorm")),
    ),
    "nemotron3ultra": (("", "", ("moe_act",)),),
    "kimik2": (("h100", "", ("mla_up_proj", "mlp")), ("", "", ("mla_up_proj",))),
    "gptoss120b": (
        ("h100", "", ("layernorm", "moe_act")),
        ("b200", "", ("layernorm", "moe_act")),
        ("gb200", "bf16", ("layernorm", "moe_act")),
    ),
}


def splits_overlap(case: Case, experts: bool) -> bool:
    """Tensor parallel exchanges run beside products (userbuffers): dense models, where the axis is there at all.

    Not those of Bridge in NVFP4: its configurations turn it off there.
    """
    off = "Bridge" in case.text("framework") and "fp4" in case.text("precision").lower()
    return is_tuned(case) and case.count("tp", 1) > 1 and not experts and not off and not mlperf.shares_no_links(case)


def gathers_ahead(case: Case) -> bool:
    """Virtual stages' weights are gathered one ahead, as Bridge's and NeMo's set-up has it (``align_param_gather``)."""
    return is_tuned(case) and case.count("pp", 1) > 1 and case.count("vp", 1) > 1


def recomputed(model: str, gpu: str, precision: str) -> tuple[str, ...]:
    """What each layer of a published benchmark computes again in its backward pass."""
    rules = next((rules for name, rules in _RECOMPUTED.items() if model.startswith(name)), ())
    for chip, format_, modules in rules:
        if gpu.startswith(chip) and precision.lower().startswith(format_):
            return modules
    return ()


_OFFLOADED: Mapping[str, tuple[tuple[str, str, int], ...]] = {
    # model -> (GPU, precision, layers whose activations wait in the host's memory), with Megatron's own FSDP
    "llama370b": (
        ("gb200", "bf16", 20), ("gb200", "fp8", 40), ("gb300", "bf16", 30), ("gb300", "fp8", 20), ("b200", "fp8", 5),
    ),
    "llama31405b": (("gb200", "fp8", 92), ("gb300", "bf16", 40), ("gb300", "fp8", 10)),
}  # fmt: skip


def offloaded(model: str, gpu: str, precision: str) -> int:
    """Layers whose activations a published benchmark with Megatron's FSDP keeps on the host."""
    for chip, format_, layers in _OFFLOADED.get(model, ()):
        if gpu == chip and precision.lower().startswith(format_):
            return layers
    return 0


_GRAPHED: Mapping[str, tuple[tuple[str, str], ...]] = {
    # model -> (GPU, precision) whose iteration is one CUDA graph, or whose attention, router and what prepares experts
    # are graphs, so that the host has the products of experts left to launch
    "llama38b": (
        ("b200", "fp8"),
        ("b300", "fp8"),
        ("gb200", "fp8"),
        ("gb300", ""),
        ("b200", "bf16"),
        ("gb200", "bf16"),
    ),
    "deepseekv3": (("b300", ""), ("gb200", ""), ("gb300", "")),
    "gptoss": (("b300", ""), ("gb300", ""), ("gb200", "mx")),
    "qwen330ba3b": (("b200", ""), ("b300", ""), ("gb200", ""), ("gb300", "")),
    "qwen3235ba22b": (("gb200", ""), ("gb300", "")),
}


def launched_as_graphs(case: Case, model: str, gpu: str) -> bool:
    """The iteration is made of CUDA graphs, so that no kernel waits for the host.

    Of mixtures of experts `tuned_experts` knows which were one graph, which in parts and which could have none.
    """
    if mlperf.is_one(case):
        return mlperf.launched_as_graphs(case)
    if "bridge" not in case.text("framework").lower():
        # dgxc-benchmarking's grok1/launch.sh: CUDA graphs on GB200 alone; a layer that drops tokens can be one
        return model.startswith("grok1") and gpu in ("gb200", "gb300")
    if tuned_experts.graphed_modules(case, gpu) or tuned_experts.counts_on_the_host(case):
        return False
    rules = next((rules for name, rules in _GRAPHED.items() if model.startswith(name)), ())
    return any(gpu == chip and case.text("precision").lower().startswith(format_) for chip, format_ in rules)


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
