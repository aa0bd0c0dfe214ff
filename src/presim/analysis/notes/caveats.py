"""Sentences about what the figures leave out and what a reader should know."""

from __future__ import annotations

import numpy as np

from presim.analysis.notes.provenance import critical_by_signature
from presim.analysis.time.breakdown import Breakdown, Instant
from presim.analysis.time.steps import Step, Steps
from presim.analysis.time.throughput import data_parallel_ranks
from presim.cost.price import PricedTrace
from presim.result import Flops, Memory
from presim.trace.schema import FAILED, Kind, Trace
from presim.trace.signatures import Collective, Signature, family
from presim.units import gib, percent, seconds

_WORTH_A_NOTE = 0.01  # of the step
_UNUSUAL = 1.5  # times as long as another step
_BUSY = 0.25  # of all CPUs: with less, captures of one program differ as much without
_SLOWED = 1.2  # times as long: what less is divided out changes little
_OVER_CACHE = "_vllm_fa"  # how the operators of vLLM's FlashAttention begin
# Of a rank that is simulated without those that it exchanges with.
PEERS_READY = "The model assumes that peers of send and recv are ready at once: pipeline bubbles are not counted."


def not_modelled(priced: PricedTrace, breakdown: Breakdown, step: Step, *, contention: bool) -> list[str]:
    """What happens on a cluster and is in none of the figures; ``contention``: whether that of overlapping work is."""
    return [
        *_unmodelled_calls(priced.trace),
        *priced.notes,
        *_guesses(priced, breakdown, step),
        *([] if contention else _overlap(breakdown)),
        *_other_ranks(priced.trace),
        *_lengths(priced.trace),
    ]


def _unmodelled_calls(trace: Trace) -> list[str]:
    calls = sorted(trace.manifest.unmodelled_calls.items(), key=lambda item: (-item[1], item[0]))
    return [f"{name} was called {times}x; the emulation does not implement it." for name, times in calls]


def _guesses(priced: PricedTrace, breakdown: Breakdown, step: Step) -> list[str]:
    """Signatures that no estimator covers."""
    spent = critical_by_signature(priced, breakdown)
    guessed = [(spent[index], _name(priced.trace.signatures[index])) for index in priced.uncovered]
    total = sum(time for time, _ in guessed)
    if not total:
        return []
    share = percent(total / max(step.duration_ns, 1))
    return [
        f"The time of kernels known only by name is a guess: {seconds(total / 1e9)}, {share} of the step, most of it "
        f"{max(guessed)[1]}; it may be ten times as long."
    ]


def _name(signature: Signature) -> str:
    return str(getattr(signature, "name", "") or family(signature))


def _overlap(breakdown: Breakdown) -> list[str]:
    hidden = breakdown.communication_ns - breakdown.spent_ns[Instant.EXPOSED_COMMUNICATION]
    if hidden <= 0:
        return []
    return [
        f"Compute and communication slow each other while they overlap ({seconds(hidden / 1e9)} of the step); "
        "each is priced as if it ran alone."
    ]


def _other_ranks(trace: Trace) -> list[str]:
    kinds = {signature.kind for signature in trace.signatures if isinstance(signature, Collective)}
    if kinds & {"send", "recv", "send_recv"}:
        return [PEERS_READY]
    return ["The model assumes that all ranks reach each collective at the same time: no stragglers."] if kinds else []


def _lengths(trace: Trace) -> list[str]:
    """vLLM's attention over cached keys: a call names the longest sequence, the others are the device's values."""
    calls = [index for index, name in enumerate(trace.operators) if name.startswith(_OVER_CACHE)]
    chosen = np.isin(trace.column("operator"), calls) & trace.mask(Kind.WORK)
    if not chosen.any():
        return []
    in_graphs = bool((trace.column("value")[chosen] == 1).any())
    replayed = ", in CUDA graphs as the longest that was allowed when they were recorded" * in_graphs
    return [f"Attention over cached keys takes every sequence to be as long as the longest of its batch{replayed}."]


def host_note(breakdown: Breakdown, step: Step, factor: float, source: str) -> list[str]:
    """What the host's time was multiplied with, where the device waits for it and it matters."""
    waits = breakdown.spent_ns[Instant.HOST_BOUND]
    if factor == 1 or not _is_worth_a_note(waits, step):
        return []
    return [
        f"The device waits {seconds(waits / 1e9)} for the host. Captured host time is multiplied by {factor:g}, "
        f"{source}; --host-factor changes it."
    ]


def busy_note(breakdown: Breakdown, step: Step, share: float, slowdown: float | None) -> list[str]:
    """That the machine was slow while host time was measured, where the device waits for it.

    ``share``: of the machine's CPUs, that others used. ``slowdown``: what host time was divided by for that; None where
    too little of it is known to tell, so that it stands as it came.
    """
    waits = breakdown.spent_ns[Instant.HOST_BOUND]
    if not _is_worth_a_note(waits, step):
        return []
    is_busy = share >= _BUSY
    others = f"Other processes used {percent(share)} of this machine's CPUs while the script was captured, and "
    if slowdown is None and is_busy:
        return [
            f"{others}host time may be too long because of them: on an idle machine the device may wait for less than "
            f"{seconds(waits / 1e9)}."
        ]
    if slowdown is None or slowdown < _SLOWED:
        return []
    return [
        f"{others if is_busy else 'While the script was captured, '}known host work took "
        f"{slowdown:.2g} times as long as on an idle machine; host time is divided by that."
    ]


def _is_worth_a_note(spent_ns: int, step: Step) -> bool:
    return spent_ns >= _WORTH_A_NOTE * max(step.duration_ns, 1)


def _unusual(steps: Steps) -> list[str]:
    """That another step was far shorter, even the first, which is rarely so in training alone."""
    durations = [step.duration_ns for step in steps.steps]
    shown, shortest = steps.steady_index, durations.index(min(durations))
    if durations[shown] <= _UNUSUAL * durations[shortest]:
        return []
    return [
        f"Step {shown + 1}, which the figures describe, takes {seconds(durations[shown] / 1e9)}, step {shortest + 1} "
        f"{seconds(durations[shortest] / 1e9)}: one of them does what not every step does, such as an evaluation or a "
        f"checkpoint. More steps (--steps {len(durations) + 3}) tell which is usual."
    ]


_NO_STEP = "No step was completed: the figures cover the run until it failed."
_ONE_STEP = "No optimizer step was seen: the whole run counts as one step."


def reader_notes(trace: Trace, steps: Steps, flops: Flops, memory: Memory) -> list[str]:
    """What shaped the figures and may surprise."""
    notes = list(trace.manifest.notes)
    failed = trace.manifest.exit in FAILED
    if not steps.counted:
        notes.append(_NO_STEP if failed else _ONE_STEP)
    elif steps.sets_up:
        shown = steps.steady_index + 1
        notes.append(
            f"Step {shown} is not steady: {steps.sets_up} in it. Capture more steps (--steps {shown + 2}) to see a "
            "steady one."
        )
    elif not steps.is_steady:
        notes.append("Only one step was captured: it stands for the steady step and includes warm-up.")
    else:
        notes += _unusual(steps)
    ranks = data_parallel_ranks(trace)
    if trace.manifest.batch and ranks != trace.manifest.world_size:
        notes.append(f"Throughput assumes that {ranks} of {trace.manifest.world_size} ranks read different data.")
    counted = trace.manifest.allocator.get("peak_allocated_bytes", 0)
    if counted > memory.peak_allocated_bytes:
        missing = gib(counted - memory.peak_allocated_bytes)
        notes.append(f"PyTorch itself counted a peak of {gib(counted)} allocated: the trace lacks {missing}.")
    if flops.dtype and not flops.peak_per_s:
        notes.append(f"No MFU: the GPU's dense {flops.dtype} peak is not known.")
    return notes
