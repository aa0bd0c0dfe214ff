"""Times of queued runs as the GPU's tracer (CUPTI, through PyTorch's profiler) records them.

Two events around a kernel read 3 us more than the kernel takes, which doubles the time of a small one. A trace has
none of that. A sweep over more memory than L2 holds precedes each run, so that caches are cold; its kernel also
separates the runs in the trace.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from presim.cost.profile.call_times import Span, run_times


def sweep(memory: torch.Tensor) -> None:
    """Read and write all of ``memory``, a tensor of int8, by a kernel that nothing else launches."""
    memory.bitwise_not_()


def sweep_name(memory: torch.Tensor) -> str:
    """The name of the sweep's kernel in a trace; empty where there is no tracer."""
    spans = _recorded(lambda: sweep(memory))
    return spans[0][2] if len(spans) == 1 else ""


def traced(queue: Callable[[], object], name: str) -> list[float]:
    """Times in ms from the start of a run's first kernel to the end of its last, of the runs that ``queue`` queues.

    ``name``: of the sweep's kernel. Without one there is no tracer: the runs are queued, and no times are known.
    """
    if not name:
        queue()
        return []
    return run_times(_recorded(queue), name)


def _recorded(queue: Callable[[], object]) -> list[Span]:
    """Kernels, copies and memsets of a call in the order of their starts; waits for the device."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        queue()
        torch.cuda.synchronize()
    results = record.profiler.kineto_results if record.profiler else None
    device = torch.autograd.DeviceType.CUDA
    return sorted(
        (event.start_ns(), event.start_ns() + event.duration_ns(), event.name())
        for event in (results.events() if results else ())
        if event.device_type() == device
    )
