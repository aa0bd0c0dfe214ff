"""What the GPUs of one process do, if the job is one process that uses several."""

from __future__ import annotations

import numpy as np

from presim.analysis.memory.blocks import Ints, fullest_gpu, peaks_by_gpu
from presim.analysis.time.steps import Step
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Manifest, Trace
from presim.units import gib, percent


def gpus_used(manifest: Manifest) -> int:
    """GPUs on which the process runs work; 1 for a rank, which has one."""
    return len({0, *manifest.stream_devices.values()}) if manifest.devices > 1 else 1


def gpus_of_process_note(trace: Trace, timeline: Timeline, step: Step) -> list[str]:
    """Sentences on memory and work of each GPU of one process; none if it has one GPU."""
    manifest = trace.manifest
    if manifest.devices < 2:
        return []
    busy = busy_shares(trace, timeline, step)
    parts = [
        f"GPU {gpu} reserves {gib(reserved)} and is busy {percent(share)} of the step"
        for gpu, (reserved, share) in enumerate(zip(peaks_by_gpu(trace), busy))
    ]
    slowest = busy.index(max(busy))
    return [
        f"One process uses {gpus_used(manifest)} of {manifest.devices} GPUs; {'; '.join(parts)}. "
        f"Memory is that of GPU {fullest_gpu(trace)}, the fullest, and GPU {slowest} limits the step most.",
        "Work of several GPUs of one process is not slowed by each other, and their collectives do not wait for "
        "each other. Energy is that of one GPU that does the critical work.",
    ]


def busy_shares(trace: Trace, timeline: Timeline, step: Step) -> list[float]:
    """Share of the step in which each GPU of the process runs work."""
    entries = step.entries
    stream = trace.columns["stream"][entries].astype(np.int64)
    devices = np.zeros(int(stream.max(initial=0)) + 1, np.int64)
    for index, device in trace.manifest.stream_devices.items():
        if index < len(devices):
            devices[index] = device
    is_work = trace.mask(Kind.WORK, Kind.COLLECTIVE)[entries]
    start, end = timeline.start_ns[entries], timeline.end_ns[entries]
    masks = [is_work & (devices[stream] == device) for device in range(trace.manifest.devices)]
    return [_covered_ns(start[mask], end[mask]) / max(step.duration_ns, 1) for mask in masks]


def _covered_ns(start: Ints, end: Ints) -> int:
    """Length of the union of intervals."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    before = np.maximum.accumulate(np.concatenate([[0], end]))[:-1]
    return int(np.maximum(end - np.maximum(start, before), 0).sum())
