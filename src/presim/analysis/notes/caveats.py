"""Sentences about what the figures leave out and what a reader should know."""

from __future__ import annotations

import numpy as np

from presim.analysis.memory.growth import growth_note, step_peaks
from presim.analysis.notes.provenance import critical_by_signature
from presim.analysis.notes.step_notes import step_notes
from presim.analysis.time.breakdown import Breakdown, Instant
from presim.analysis.time.steps import Step, TraceSteps
from presim.analysis.time.throughput import are_separate_programs, data_parallel_ranks, processes_per_gpu
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.result import Flops, Memory
from presim.trace.schema import Kind, Manifest, Trace
from presim.trace.signatures import Collective, Signature, family
from presim.units import gib, percent, seconds

_WORTH_A_NOTE = 0.01  # of the step
_BUSY = 0.25  # of all CPUs; a smaller share changes host time less than captures differ anyway
_SLOWED = 1.2  # times as long; a correction below this is too small to report
_OVER_CACHE = "_vllm_fa"  # prefix of the operators of vLLM's FlashAttention
# For a rank that is simulated without its peers.
PEERS_READY = "The model assumes that peers of send and recv are ready at once: pipeline bubbles are not included."


def not_modelled(priced: PricedTrace, breakdown: Breakdown, step: Step, *, contention: bool) -> list[str]:
    """Effects on a real cluster that no figure includes; ``contention``: the simulation slows overlapping work."""
    return [
        *_unmodelled_calls(priced.trace),
        *priced.not_modelled,
        *_unestimated_signatures(priced, breakdown, step),
        *([] if contention or priced.trace.manifest.measured else _overlap(breakdown)),
        *_other_ranks(priced.trace),
        *_sequence_length_note(priced.trace),
    ]


def _unmodelled_calls(trace: Trace) -> list[str]:
    calls = sorted(trace.manifest.unmodelled_calls.items(), key=lambda item: (-item[1], item[0]))
    return [f"{name} was called {times}x; the emulation does not implement it." for name, times in calls]


def _unestimated_signatures(priced: PricedTrace, breakdown: Breakdown, step: Step) -> list[str]:
    """Signatures that no estimator covers."""
    spent = critical_by_signature(priced, breakdown)
    guessed = [(spent[index], _name(priced.trace.signatures[index])) for index in priced.uncovered]
    total = sum(time for time, _ in guessed)
    if not total:
        return []
    share = percent(total / max(step.duration_ns, 1))
    return [
        f"The time of kernels known only by name is a guess: {seconds(total / 1e9)}, {share} of the step, most of it "
        f"{max(guessed)[1]}. The true time may be ten times as long."
    ]


def _name(signature: Signature) -> str:
    return str(getattr(signature, "name", "") or family(signature))


def _overlap(breakdown: Breakdown) -> list[str]:
    hidden = breakdown.communication_ns - breakdown.spent_ns[Instant.EXPOSED_COMMUNICATION]
    if hidden <= 0:
        return []
    return [
        f"Compute and communication overlap for {seconds(hidden / 1e9)} of the step; the prediction does not include "
        "the slowdown that they cause each other."
    ]


def _other_ranks(trace: Trace) -> list[str]:
    kinds = {signature.kind for signature in trace.signatures if isinstance(signature, Collective)}
    if kinds & {"send", "recv", "send_recv"}:
        return [PEERS_READY]
    return ["The model assumes that all ranks reach each collective at the same time: no stragglers."] if kinds else []


def _sequence_length_note(trace: Trace) -> list[str]:
    """A note on vLLM's attention over a KV cache: a call gives only the longest sequence length to the host."""
    calls = [index for index, name in enumerate(trace.operators) if name.startswith(_OVER_CACHE)]
    over_cache = np.isin(trace.column("operator"), calls) & trace.mask(Kind.WORK)
    if not over_cache.any():
        return []
    in_graphs = bool((trace.column("value")[over_cache] == 1).any())
    replayed = ", in CUDA graphs as long as the limit at graph capture" * in_graphs
    return [
        f"Attention over the KV cache assumes that every sequence is as long as the longest of its batch{replayed}."
    ]


def host_note(breakdown: Breakdown, step: Step, factor: float, source: str) -> list[str]:
    """A note on the host factor, if the device waits for the host for a relevant part of the step."""
    waits = breakdown.spent_ns[Instant.HOST_BOUND]
    if factor == 1 or not _is_worth_a_note(waits, step):
        return []
    return [
        f"The device waits {seconds(waits / 1e9)} for the host. Captured host time is scaled by {factor:g}, "
        f"{source}; --host-factor changes the factor."
    ]


def busy_note(breakdown: Breakdown, step: Step, share: float, slowdown: float | None) -> list[str]:
    """A note that the machine was busy during the capture, if the device waits for the host.

    ``share``: share of the machine's CPUs that other processes used. ``slowdown``: the measured slowdown by which host
    time was divided; None if it could not be measured, so that host time is uncorrected.
    """
    waits = breakdown.spent_ns[Instant.HOST_BOUND]
    if not _is_worth_a_note(waits, step):
        return []
    is_busy = share >= _BUSY
    other_processes = (
        f"Other processes used {percent(share)} of this machine's CPUs while the script was captured, and "
    )
    if slowdown is None and is_busy:
        return [
            f"{other_processes}captured host time may be too long: after a capture on an idle machine, the device may "
            f"wait less than {seconds(waits / 1e9)} for the host."
        ]
    if slowdown is None or slowdown < _SLOWED:
        return []
    return [
        f"{other_processes if is_busy else 'While the script was captured, '}known host work took "
        f"{slowdown:.2g} times as long as on an idle machine; host time is divided by this factor."
    ]


def _is_worth_a_note(spent_ns: int, step: Step) -> bool:
    return spent_ns >= _WORTH_A_NOTE * max(step.duration_ns, 1)


def _separate_programs_note(manifest: Manifest, ranks: int) -> list[str]:
    """A sentence if ranks never communicate: a program for one process was started once for each GPU."""
    if not are_separate_programs(manifest):
        return []
    sharing = processes_per_gpu(manifest)
    counted = "them all" if sharing == 1 else f"{ranks} of them, because {sharing} share a GPU"
    return [
        f"The ranks call no collective of NCCL together: the job is {manifest.world_size} copies of a program. "
        f"Throughput counts {counted}."
    ]


def reader_notes(trace: Trace, timeline: Timeline, steps: TraceSteps, flops: Flops, memory: Memory) -> list[str]:
    """Notes on the capture that explain unexpected figures."""
    notes = [*trace.manifest.notes, *step_notes(trace, timeline, steps)]
    notes += growth_note(step_peaks(trace))
    ranks = data_parallel_ranks(trace)
    notes += _separate_programs_note(trace.manifest, ranks)
    if trace.manifest.batch and ranks != trace.manifest.world_size and trace.manifest.devices == 1:
        notes.append(f"Throughput assumes that {ranks} of {trace.manifest.world_size} ranks read different data.")
    counted = trace.manifest.allocator.get("peak_allocated_bytes", 0)
    if counted > memory.peak_allocated_bytes:
        missing = gib(counted - memory.peak_allocated_bytes)
        notes.append(f"PyTorch counted a peak of {gib(counted)} allocated: {missing} are missing in the trace.")
    if flops.dtype and not flops.peak_per_s:
        notes.append(f"No MFU: the GPU's dense {flops.dtype} peak is not known.")
    return notes
