"""Device memory: peaks as PyTorch defines them, their contents, and whether the job fits."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from presim.analysis.memory.blocks import (
    FULL_GPU,
    Blocks,
    Ints,
    allocated_bytes,
    find_blocks,
    pinned_host_bytes,
    reserved_bytes,
)
from presim.analysis.memory.module_peaks import module_peaks
from presim.analysis.time.scopes import merge_numbers
from presim.analysis.time.steps import Step
from presim.engine.timeline import Timeline
from presim.result import Estimate, Held, Memory, MemoryTimeline
from presim.trace.schema import FAILED, Category, Kind, Trace
from presim.units import gib, percent

TIMELINE_POINTS = 128
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_REQUEST = re.compile(r"Tried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)")


def analyse_memory(
    trace: Trace,
    timeline: Timeline,
    step: Step,
    *,
    device_total_bytes: int,
    outside_estimates: Sequence[Estimate],
    captured_here: bool,
    memory_trace: Trace | None = None,
    brief: bool = False,
) -> Memory:
    """The memory part of a result; ``outside_estimates``: device memory outside the allocator.

    ``captured_here``: the trace was captured for the same GPU. ``memory_trace``: a trace with all memory entries of the
    job, where ``trace`` lacks some; the timeline of memory and the peaks of modules are then
    omitted. ``brief``: without the peaks of modules.
    """
    allocated, reserved = allocated_bytes(memory_trace or trace), reserved_bytes(memory_trace or trace)
    step_stops = [entries.stop for entries in trace.steps()]
    entries = step.entries if memory_trace is None else memory_trace.steps()[step_stops.index(step.entries.stop)]
    peak_reserved, requested = _peak(reserved), requested_bytes(trace.manifest.error)
    headroom = (
        device_total_bytes - peak_reserved - (requested or 0) - sum(estimate.bytes for estimate in outside_estimates)
    )
    fits, verdict = judge(trace, _peak(allocated), peak_reserved, headroom, captured_here=captured_here)
    by_category, by_module = held_at_peak(memory_trace or trace, allocated)
    return Memory(
        fits=fits,
        verdict=verdict,
        advice=advise(by_category) if fits is False else "",
        peak_allocated_bytes=_peak(allocated),
        peak_reserved_bytes=peak_reserved,
        step_peak_allocated_bytes=_peak(_within(allocated, entries)),
        step_peak_reserved_bytes=_peak(_within(reserved, entries)),
        device_total_bytes=device_total_bytes,
        headroom_bytes=headroom,
        beyond_allocator=list(outside_estimates),
        by_category=by_category,
        by_module=by_module,
        requested_bytes=requested,
        timeline=MemoryTimeline([], [], [])
        if memory_trace
        else memory_timeline(device_clock_ns(trace, timeline), step, allocated, reserved),
        modules=[] if brief or memory_trace is not None else module_peaks(trace, entries, allocated),
        pinned_host_bytes=pinned_host_bytes(memory_trace or trace),
    )


def held_at_peak(trace: Trace, allocated: Ints) -> tuple[list[Held], list[Held]]:
    """Contents of the live blocks at the peak, by category and by module, largest first."""
    if not _peak(allocated):
        return [], []
    blocks, peak = find_blocks(trace), int(np.argmax(allocated))
    live = blocks.live_at(peak)
    categories = [Category(value).name.lower() for value in blocks.categories_at(peak)[live].tolist()]
    scope = trace.columns["scope"].astype(np.int64)[blocks.alloc[live]].tolist()
    modules = [merge_numbers(trace.scopes[index] if index >= 0 else "") for index in scope]
    return _held_by_name(blocks, live, categories), _held_by_name(blocks, live, modules)


def _held_by_name(blocks: Blocks, live: Ints, names: list[str]) -> list[Held]:
    sizes: dict[str, list[int]] = {}
    for name, size in zip(names, blocks.bytes[live].tolist()):
        sizes.setdefault(name, []).append(size)
    rows = [Held(name, sum(values), len(values)) for name, values in sizes.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.name))


def judge(
    trace: Trace, allocated: int, reserved: int, headroom: int, *, captured_here: bool
) -> tuple[bool | None, str]:
    """Whether the job fits, with a sentence about it.

    On another GPU than that of the capture, the allocator might reserve less memory. If the live blocks fit but the
    reserved memory does not, the answer is no, with a hint.
    """
    manifest = trace.manifest
    if manifest.exit == "out_of_memory":
        failed_bytes = requested_bytes(manifest.error)
        if not captured_here:
            return None, f"The capture ran out of memory on {manifest.gpu}; capture again for this GPU to find out."
        failure = f"an allocation of {gib(failed_bytes)} failed" if failed_bytes else "an allocation failed"
        short = f"; {gib(-headroom)} short" if headroom < 0 else ""
        verdict = f"{failure[0].upper()}{failure[1:]} with {gib(allocated)} allocated, {gib(reserved)} reserved{short}."
        return False, verdict + _other_processes_sentence(trace)
    if not reserved and not allocated:
        if manifest.measured is not None:
            return None, "Memory is not predicted: a profile of times contains no allocations."
        return None, "Nothing was allocated on the device."
    if manifest.exit in FAILED:
        return (
            None,
            f"The script ended early, with {gib(reserved)} reserved and {gib(headroom)} left at the peak.",
        )
    if headroom >= 0:
        return True, f"Fits with {gib(headroom)} to spare."
    if headroom + reserved - allocated >= 0:
        hint = "the live blocks would fit, and the allocator may reserve less there; capture for this GPU to find out"
        return (
            False,
            f"Does not fit: short of {gib(-headroom)} including memory that the allocator reserves ({hint}).",
        )
    return False, f"Does not fit: short of {gib(-headroom)}."


def _other_processes_sentence(trace: Trace) -> str:
    """What other processes hold on the GPU that was full, as a sentence with a leading blank; empty if nothing."""
    full = FULL_GPU.search(trace.manifest.error)
    for use in trace.manifest.gpus:
        if full and use.gpu == int(full.group(1)) and use.processes > 1:
            sharing = f"{use.processes} processes of the node hold {gib(use.all_bytes)} on GPU {use.gpu}"
            return f" {sharing}, with a CUDA context each: map what is loaded to the rank's own GPU."
    return ""


_RELIEF = {
    "parameter": (
        "shard them (FSDP2, ZeRO-3, tensor or pipeline parallelism) over more GPUs, offload them to the host, or keep "
        "them in fewer bits"
    ),
    "gradient": "shard them over more GPUs (FSDP2, ZeRO-2), keep them in bfloat16, or step inside backward",
    "optimizer_state": "shard it over more GPUs (FSDP2, ZeRO-1), keep it in fewer bits, or offload it to the host",
    "activation": "checkpoint activations, use smaller micro-batches, or split the sequence (context parallelism)",
    "temporary": "use smaller micro-batches, or chunk the largest operation (often the loss over the vocabulary)",
    "communication": "use smaller buckets (DDP: gradient_as_bucket_view=True), or prefetch less far ahead",
}


def advise(by_category: Sequence[Held]) -> str:
    """Advice on how to free memory of the two largest categories at the peak."""
    relieved = [category for category in by_category if category.name in _RELIEF][:2]
    total_bytes = sum(category.bytes for category in by_category)
    sentences = [
        f"{category.name.replace('_', ' ')} ({gib(category.bytes)}, {percent(category.bytes / total_bytes)}): "
        f"{_RELIEF[category.name]}"
        for category in relieved
    ]
    return f"Most is {'; then '.join(sentences)}." if sentences else ""


def requested_bytes(error: str) -> int | None:
    """The requested size in PyTorch's out-of-memory message, bytes; None if the text has none."""
    match = _REQUEST.search(error)
    return round(float(match[1]) * _UNITS[match[2]]) if match else None


def device_clock_ns(trace: Trace, timeline: Timeline) -> Ints:
    """Device time of each entry, ns: an entry is not reached before earlier work has started.

    The host allocates and frees blocks up to a step ahead of the device. This clock aligns memory with the kernels
    that use it.
    """
    device = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    return np.maximum.accumulate(np.maximum(np.where(device, timeline.start_ns, 0), timeline.issue_ns))


def memory_timeline(clock_ns: Ints, step: Step, allocated: Ints, reserved: Ints) -> MemoryTimeline:
    """Memory over the step in at most `TIMELINE_POINTS` points, each the maximum of its interval."""
    start, stop, _ = step.entries.indices(len(allocated))
    if stop <= start:
        return MemoryTimeline([], [], [])
    edges = np.linspace(clock_ns[start], clock_ns[stop - 1], min(TIMELINE_POINTS, stop - start), endpoint=False)
    firsts = np.unique(np.searchsorted(clock_ns[start:stop], edges) + start)
    return MemoryTimeline(
        (clock_ns[firsts] / 1e9).tolist(),
        np.maximum.reduceat(allocated[:stop], firsts).tolist(),
        np.maximum.reduceat(reserved[:stop], firsts).tolist(),
    )


def _within(values: Ints, entries: slice) -> Ints:
    """The values of these entries, preceded by the value before them."""
    start, stop, _ = entries.indices(len(values))
    return values[max(start - 1, 0) : stop]


def _peak(values: Ints) -> int:
    return max(int(values.max()), 0) if len(values) else 0
