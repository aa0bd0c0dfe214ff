"""Host time to launch the kernels of a composed step: what the device waits for if it is faster than the host.

vLLM captures decoding steps as one CUDA graph, and the linear layers of small steps with prompts as one graph between
two attention kernels. Beyond its largest graph, compiled kernels are launched one by one. SGLang runs steps with
prompts eagerly, and is taken to need as long as vLLM's eager model runner. TensorRT-LLM launches them one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from presim.hardware import Gpu
from presim.serving.model import Model
from presim.serving.plan import Plan, graph_sizes
from presim.serving.steps import layers
from presim.serving.steps.experts import Routed
from presim.serving.steps.overheads import Overheads
from presim.trace.signatures import Gemm

# What work of an eager step takes, in launches of one kernel: Python code before it, and several kernels. From vLLM
# 0.33's eager model runner on the emulated H100: 41 ms for the 48 layers of Qwen3-30B-A3B, and 0.8 ms more a layer with
# weights in FP8 by blocks (validation/results/captured-steps.md). Compiled steps beyond the largest CUDA graph take as
# long for experts there, but published TTFT contradicts it (validation/results/serving.md).
_EXPERTS = 16
_BLOCK_PRODUCT = 4  # with the kernel that quantises its input


def tables(model: Model, plan: Plan, overheads: Overheads, gpu: Gpu) -> dict[str, Any]:
    """ns by tokens of a step, by the fields of `presim.serving.engines.engine.StepTimes`."""
    tokens = np.arange(plan.max_num_batched_tokens + 1)
    eager = np.full(len(tokens), launched(model, plan, eager=True) * overheads.eager_launch_us * 1e3)
    if not plan.cuda_graphs:
        return {"prompt_launch_ns": eager, "decode_launch_ns": eager}
    in_graphs = tokens <= graph_sizes(plan, gpu.architecture == "blackwell")[-1]
    beyond = launched(model, plan) * overheads.launch_us * 1e3
    pieces = sum(layers.stage_layers(model, plan)) * overheads.piece_us * 1e3
    prompts = {
        "vllm": np.where(in_graphs, min(pieces, beyond), beyond),
        "sglang": eager,
        "trtllm": np.full(len(tokens), beyond),
    }
    return {"prompt_launch_ns": prompts[plan.kernels], "decode_launch_ns": np.where(in_graphs, 0.0, beyond)}


def launched(model: Model, plan: Plan, *, eager: bool = False) -> int:
    """Kernels of a stage's layers, or launches that an eager step's take as long as; no all-reduces of one rank."""
    alone = {"tp": plan.tp == 1, "experts": plan.tp * plan.dp == 1, "stages": plan.pp == 1}
    return sum(
        count * (_weight(work) if eager else 1)
        for work, count in layers.stage(model, plan, 1)
        if not (isinstance(work, layers.Reduce) and alone[work.over])
    )


def _weight(work: layers.Work) -> int:
    if isinstance(work, Routed):
        return _EXPERTS
    return _BLOCK_PRODUCT if isinstance(work, Gemm) and work.scaling == "block" else 1
