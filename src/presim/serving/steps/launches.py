"""Host time to launch the kernels of a composed step: what the device waits for if it is faster than the host.

vLLM captures decoding steps as one CUDA graph, and the linear layers of small steps with prompts as one graph between
two attention kernels. Beyond its largest graph, compiled kernels are launched one by one. SGLang runs steps with
prompts eagerly, and is taken to need as long as vLLM's eager model runner. TensorRT-LLM launches them one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from presim.composition.models.description import Model
from presim.hardware import Gpu
from presim.serving.serving_plan import ServingPlan, graph_sizes
from presim.serving.steps import lora, stage
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.routed_experts import Routed
from presim.serving.steps.step_work import Reduce, Work
from presim.trace.signatures import Gemm

# What a layer's work takes beyond a CUDA graph, in launches of one kernel: Python code before it, and several kernels.
# From vLLM 0.33's model runner on the emulated H100 (validation/results/captured-steps.md): eager steps take 41 ms for
# the 48 layers of Qwen3-30B-A3B, and 0.8 ms more a layer with weights in FP8 by blocks. Compiled ones take 30 ms on an
# idle machine and 43 ms on a busy one, which published TTFT is nearer to (validation/results/serving.md); the 24 layers
# of gpt-oss-20b take 36 ms. On Blackwell gpt-oss has other kernels, and published TTFT shows no such time.
_EXPERTS = {"eager": 16, "compiled": 26}
_EXPERTS_MXFP4 = 50
_BLOCK_PRODUCT = 4  # of an eager step, with the kernel that quantises its input
# A linear layer that adapters change: a buffer and two kernels in Triton, each launched by Python code. A run of
# Qwen2.5-72B in INT4 with --enforce-eager went from 57 to 154 ms a token with an adapter: 300 us for each product.
_ADAPTED = {"eager": 9, "compiled": 3}


def tables(model: Model, plan: ServingPlan, overheads: Overheads, gpu: Gpu) -> dict[str, Any]:
    """ns by tokens of a step, by the fields of `presim.serving.engines.engine.StepTimes`."""
    tokens = np.arange(plan.max_num_batched_tokens + 1)
    eager = np.full(len(tokens), launched(model, plan, gpu, eager=True) * overheads.eager_launch_us * 1e3)
    if not plan.cuda_graphs:
        return {"prompt_launch_ns": eager, "decode_launch_ns": eager}
    in_graphs = tokens <= graph_sizes(plan, gpu.architecture == "blackwell")[-1]
    without_graphs = launched(model, plan, gpu) * overheads.launch_us * 1e3
    pieces = sum(count for _, count in stage.layers_of(model, plan)) * overheads.piece_us * 1e3
    prompts = {
        "vllm": np.where(in_graphs, min(pieces, without_graphs), without_graphs),
        "sglang": eager,
        "trtllm": np.full(len(tokens), without_graphs),
    }
    return {"prompt_launch_ns": prompts[plan.kernels], "decode_launch_ns": np.where(in_graphs, 0.0, without_graphs)}


def launched(model: Model, plan: ServingPlan, gpu: Gpu, *, eager: bool = False) -> int:
    """Launches that those of a stage's layers take as long as; no all-reduces of one rank."""
    is_single_rank = {"tp": plan.tp == 1, "experts": plan.tp * plan.dp == 1, "stages": plan.pp == 1}
    plain = sum(
        count * (1 if plan.kernels == "trtllm" else _weight(work, gpu, eager))
        for work, count in stage.stage(model, plan, 1)
        if not (isinstance(work, Reduce) and is_single_rank[work.over])
    )
    if not plan.max_loras:
        return plain
    adapted = sum(count * lora.adapted(layer, model.hidden, plan) for layer, count in stage.layers_of(model, plan))
    return plain + adapted * _ADAPTED["eager" if eager else "compiled"]


def _weight(work: Work, gpu: Gpu, eager: bool) -> int:
    if isinstance(work, Routed):
        if work.weights == "mxfp4":
            return 1 if gpu.architecture == "blackwell" else _EXPERTS_MXFP4
        return _EXPERTS["eager" if eager else "compiled"]
    return _BLOCK_PRODUCT if eager and isinstance(work, Gemm) and work.scaling == "block" else 1
