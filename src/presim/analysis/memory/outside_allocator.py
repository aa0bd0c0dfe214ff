"""Device memory outside PyTorch's allocator, as named estimates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from presim.result import Estimate
from presim.result.memory import OTHER_PROCESSES
from presim.trace.schema import GpuUse, Group, Kind, Trace
from presim.trace.signatures import Attention, Collective

# Buffers and kernels of one communicator by number of ranks, as observed by NVIDIA's aiconfigurator 0.5 on A100 to B200
# with NCCL 2.27 (systems/*.yaml, misc.nccl_mem; "based on observations").
_NCCL_PAIR_BYTES = 342 << 20
_NCCL_BYTES = 392 << 20
_NCCL_SOURCE = "observed by NVIDIA's aiconfigurator with NCCL 2.27 (342 MiB for 2 ranks, 392 MiB for 4 and more)"
_CUDNN_SOURCE = (
    "fp32 sums of the query's gradient, batch x heads x length x head_dim x 4 bytes, which the backward accumulates in "
    "memory (FlashAttention-2, algorithm 2); the emulated cuDNN asks for no workspace of its own"
)


def outside_allocator(trace: Trace, *, context_bytes: int, context_source: str) -> list[Estimate]:
    """Estimates of the device memory in use outside the allocator.

    These are the driver's context, the buffers of used communicators, the workspace of cuDNN's attention, and memory of
    other processes on the same GPU.

    The workspace of cuBLAS is not included, because PyTorch allocates it from its own allocator. The workspace of
    cuDNN's convolutions depends on the engine that cuDNN chooses on the GPU, and is not known.
    """
    estimates = [Estimate("CUDA context", context_bytes, context_source)] if context_bytes else []
    groups = trace.manifest.groups
    used = _one_per_gpu(sorted(_groups_used(trace)), groups)
    for index in used:
        size = groups[index].size if index < len(groups) else trace.manifest.world_size
        name = groups[index].name if index < len(groups) else f"group {index}"
        if size > 1:
            buffer_bytes = _NCCL_PAIR_BYTES if size == 2 else _NCCL_BYTES
            estimates.append(Estimate(f"NCCL communicator {name} ({size} ranks)", buffer_bytes, _NCCL_SOURCE))
    if workspace := _attention_workspace(trace):
        estimates.append(Estimate("cuDNN attention workspace", workspace, _CUDNN_SOURCE))
    if trace.manifest.gpus and (estimate := _other_processes_estimate(trace.manifest.gpus[0])):
        estimates.append(estimate)
    return estimates


def _one_per_gpu(used: Sequence[int], groups: Sequence[Group]) -> list[int]:
    """The groups that have buffers on one GPU: a process with several GPUs makes a communicator on each of them."""
    within = [index for index in used if index < len(groups) and groups[index].is_within_process]
    elsewhere = {index for number, index in enumerate(within) if number % groups[index].size}
    return [index for index in used if index not in elsewhere]


def _other_processes_estimate(use: GpuUse) -> Estimate | None:
    other_bytes = use.all_bytes - use.own_bytes
    return (
        Estimate(f"{OTHER_PROCESSES} on GPU {use.gpu}", other_bytes, "their allocations and contexts")
        if other_bytes > 0
        else None
    )


def _attention_workspace(trace: Trace) -> int:
    """Bytes of the largest workspace. Each is freed after its call."""
    return max(
        (
            4 * sig.batch * sig.heads * sig.q_len * sig.head_dim
            for sig in trace.signatures
            if isinstance(sig, Attention) and sig.backend == "cudnn" and sig.direction == "backward"
        ),
        default=0,
    )


def _groups_used(trace: Trace) -> set[int]:
    """Process groups with at least one call; NCCL creates a communicator at its first call."""
    called = np.unique(trace.columns["signature"][trace.mask(Kind.COLLECTIVE)]).tolist()
    return {sig.group for sig in (trace.signatures[index] for index in called) if isinstance(sig, Collective)}
