"""Host time to launch the kernels of a composed step: what the device waits for if it is faster than the host.

vLLM captures decoding steps as one CUDA graph, and the linear layers of small steps with prompts as one graph between
two attention kernels. Beyond its largest graph, kernels are launched one by one. SGLang and TensorRT-LLM launch all
steps with prompts one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from presim.hardware import Gpu
from presim.serving.model import Model
from presim.serving.plan import Plan, graph_sizes
from presim.serving.steps import layers
from presim.serving.steps.overheads import Overheads

# Launches that the experts of a layer take as long as: vLLM 0.33's eager model runner on the emulated H100 takes 41 ms
# for the 48 layers of Qwen3-30B-A3B (validation/results/captured-steps.md). Beyond the largest CUDA graph it would be
# as much, but published TTFT contradicts it (validation/results/serving.md).
_EXPERTS = 16


def tables(model: Model, plan: Plan, overheads: Overheads, gpu: Gpu) -> dict[str, Any]:
    """ns by tokens of a step, by the fields of `presim.serving.engines.engine.StepTimes`."""
    tokens = np.arange(plan.max_num_batched_tokens + 1)
    kernels = launched(model, plan)
    if not plan.cuda_graphs:
        experts = layers.stage_layers(model, plan)[1]
        eager = np.full(len(tokens), (kernels + (_EXPERTS - 1) * experts) * overheads.eager_launch_us * 1e3)
        return {"prompt_launch_ns": eager, "decode_launch_ns": eager}
    in_graphs = tokens <= graph_sizes(plan, gpu.architecture == "blackwell")[-1]
    beyond = kernels * overheads.launch_us * 1e3
    decodes = np.where(in_graphs, 0.0, beyond)
    if plan.kernels != "vllm":
        return {"prompt_launch_ns": np.full(len(tokens), beyond), "decode_launch_ns": decodes}
    pieces = sum(layers.stage_layers(model, plan)) * overheads.piece_us * 1e3
    return {"prompt_launch_ns": np.where(in_graphs, min(pieces, beyond), beyond), "decode_launch_ns": decodes}


def launched(model: Model, plan: Plan) -> int:
    """Kernels of a stage's layers; all-reduces of one rank are none."""
    alone = {"tp": plan.tp == 1, "experts": plan.tp * plan.dp == 1}
    return sum(
        count
        for work, count in layers.stage(model, plan, 1)
        if not (isinstance(work, layers.Reduce) and alone[work.over])
    )
