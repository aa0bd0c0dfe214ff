"""Combines all analyses of one priced and simulated trace into a `Result`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from presim.analysis.memory.outside_allocator import outside_allocator
from presim.analysis.memory.peaks import analyse_memory
from presim.analysis.notes.caveats import busy_note, host_note, not_modelled, reader_notes
from presim.analysis.notes.gpus_of_process import gpus_of_process_note, gpus_used
from presim.analysis.notes.limit_notes import find_limits
from presim.analysis.notes.provenance import Doubts, host_ns, provenance
from presim.analysis.notes.read_back_notes import policies_note, policies_used, ranges, read_backs, selection_note
from presim.analysis.time.breakdown import Breakdown, Instant, break_down
from presim.analysis.time.communicator_waits import connecting_note, find_connecting
from presim.analysis.time.energy import energy
from presim.analysis.time.flops import count_flops, utilisation
from presim.analysis.time.module_times import by_module
from presim.analysis.time.operator_times import by_collective, by_family, by_operator
from presim.analysis.time.phase_times import by_phase
from presim.analysis.time.step_phases import step_phases
from presim.analysis.time.step_spread import step_spread, unusual_steps
from presim.analysis.time.steps import TraceSteps, find_steps
from presim.analysis.time.throughput import throughput
from presim.cost.price import PricedTrace
from presim.engine.calls import NO_CALLS, CallCosts
from presim.engine.timeline import Timeline
from presim.result import SCHEMA_VERSION, Connecting, Coverage, EvaluatedJob, Flops, Memory, ReadBack, Result, Time
from presim.result import Steps as StepFigures
from presim.trace.schema import FAILED, Manifest, Trace


@dataclasses.dataclass(frozen=True)
class Device:
    """Facts about the cluster that a result needs."""

    gpu: str  # catalogue id
    gpu_name: str
    nodes: int
    gpus_per_node: int
    memory_bytes: int
    context_bytes: int
    context_source: str  # source of that figure
    peak_flops: dict[str, float]  # dense peak per second by dtype
    contention: bool = True  # whether the simulation includes contention
    host_factor: float = 1.0  # factor on captured host time
    host: str = ""  # source of that factor, as a clause
    slowdown: float | None = None  # slowdown by other processes during the capture, divided out; None: unknown
    calls: CallCosts = NO_CALLS  # CPU time of library calls beyond what was captured
    launch_latency_ns: int = 0  # from the host's issue of a kernel to its start on an idle device
    power_w: float = 0.0  # limit of one GPU; 0: not known


@dataclasses.dataclass(frozen=True)
class _Run:
    """Input of all analyses: one rank, the breakdown of its steady step, and read-backs of all captured ranks."""

    priced: PricedTrace
    timeline: Timeline
    device: Device
    steps: TraceSteps
    parts: Breakdown  # of the steady step
    manifests: Sequence[Manifest]  # of all captured ranks
    reads: list[ReadBack]

    @classmethod
    def of(
        cls,
        priced: PricedTrace,
        timeline: Timeline,
        device: Device,
        job: Sequence[Trace],
        broken_down: tuple[TraceSteps, Breakdown] | None,
    ) -> _Run:
        steps, parts = broken_down or steady_breakdown(priced.trace, timeline, device.launch_latency_ns)
        manifests = [trace.manifest for trace in job or (priced.trace,)]
        return cls(priced, timeline, device, steps, parts, manifests, read_backs(manifests))


def steady_breakdown(trace: Trace, timeline: Timeline, launch_latency_ns: int) -> tuple[TraceSteps, Breakdown]:
    """The steps of a rank, and the breakdown of its steady step."""
    steps = find_steps(trace, timeline)
    return steps, break_down(trace, timeline, steps.steady, launch_latency_ns=launch_latency_ns)


def summarise(
    priced: PricedTrace,
    timeline: Timeline,
    device: Device,
    job: Sequence[Trace] = (),
    *,
    broken_down: tuple[TraceSteps, Breakdown] | None = None,
    brief: bool = False,
    memory_trace: Trace | None = None,
) -> Result:
    """The `Result` of one captured rank on a device.

    Args:
        priced: the rank's priced trace.
        timeline: its timeline.
        device: facts about the cluster.
        job: the traces of all captured ranks; empty: only this one.
        broken_down: the result of `steady_breakdown`, if it was computed already.
        brief: leave out the tables by operator, family and module.
        memory_trace: the complete memory entries, if the trace lacks some.
    """
    run, trace = _Run.of(priced, timeline, device, job, broken_down), priced.trace
    step, parts = run.steps.steady, run.parts
    flops = _with_peak(count_flops(trace, step), device, gpus_used(trace.manifest))
    collectives = by_collective(trace, timeline, step, parts)
    memory = _memory(priced, timeline, run.steps, device, memory_trace, brief=brief)
    step_time_s = _step_time_s(run.steps, trace.manifest)
    low_s, high_s = _interval_s(run) if step_time_s is not None else (None, None)
    connected = find_connecting(trace, timeline, run.steps.steps[0])
    return Result(
        schema_version=SCHEMA_VERSION,
        job=_job(trace.manifest, device),
        ranks=[],
        coverage=Coverage(1, 0, 0, 0, 0, 0, 0, "", []),
        exit=trace.manifest.exit,
        misuse=list(
            dict.fromkeys(sentence for rank_trace in job or [trace] for sentence in rank_trace.manifest.misuse)
        ),
        error=trace.manifest.error,
        step_time_s=step_time_s,
        step_time_low_s=low_s,
        step_time_high_s=high_s,
        first_step_time_s=_first_step_s(run.steps, connected),
        throughput=throughput(trace, step_time_s if run.steps.counted else None, run.steps.steady_index),
        mfu=utilisation(flops.model, step_time_s, flops.peak_per_s),
        hfu=utilisation(flops.executed, step_time_s, flops.peak_per_s),
        flops=flops,
        steps=_steps(run, connected),
        time=_time(run),
        memory=memory,
        collectives=collectives,
        operators=[] if brief else by_operator(trace, timeline, step, parts),
        families=[] if brief else by_family(trace, timeline, step, parts),
        modules=[] if brief else by_module(trace, timeline, step, parts),
        limits=find_limits(priced, timeline, parts, run.steps, collectives, flops, memory.headroom_bytes),
        provenance=provenance(priced, parts, step.duration_ns),
        read_backs=run.reads,
        policies=dict(sorted(trace.manifest.policies.items())),
        policies_used=policies_used(run.reads, trace.manifest.policies),
        not_modelled=not_modelled(priced, parts, step, contention=device.contention and bool(priced.demands)),
        notes=_notes(run, flops, memory, connected),
        energy=energy(priced, parts, device.power_w) if step_time_s is not None else None,
    )


def _interval_s(run: _Run) -> tuple[float, float]:
    step, device = run.steps.steady, run.device
    trace = run.priced.trace
    host = sum(times * host_ns(trace, part, device.host_factor, device.calls) for part, times in step.spans)
    low_ns, high_ns = Doubts.of(run.priced, run.parts, step.duration_ns, host).interval()
    return low_ns / 1e9, high_ns / 1e9


def _notes(run: _Run, flops: Flops, memory: Memory, connected: Connecting | None) -> list[str]:
    """Notes of the result, in display order."""
    step, parts, device, manifest = run.steps.steady, run.parts, run.device, run.priced.trace.manifest
    captured = ranges(sorted(rank_manifest.rank for rank_manifest in run.manifests))
    return [
        *policies_note(run.reads, captured),
        *selection_note(run.reads, captured),
        *reader_notes(run.priced.trace, run.timeline, run.steps, flops, memory),
        *gpus_of_process_note(run.priced.trace, run.timeline, step),
        *connecting_note(connected),
        *host_note(parts, step, device.host_factor, device.host),
        *(busy_note(parts, step, manifest.neighbours, device.slowdown) if device.host_factor else ()),
    ]


def _with_peak(flops: Flops, device: Device, gpus: int) -> Flops:
    peak = device.peak_flops.get(flops.dtype)
    return msgspec.structs.replace(flops, peak_per_s=None if peak is None else gpus * peak)


def _step_time_s(steps: TraceSteps, manifest: Manifest) -> float | None:
    """Time of the steady step; None if nothing ran, or the script failed in its first step."""
    failed = manifest.exit in FAILED
    if not steps.steady.duration_ns or (failed and not steps.counted):
        return None
    return steps.steady.duration_ns / 1e9


def _job(manifest: Manifest, device: Device) -> EvaluatedJob:
    return EvaluatedJob(
        script=manifest.script,
        rank=manifest.rank,
        world_size=manifest.world_size,
        gpu=device.gpu,
        gpu_name=device.gpu_name,
        nodes=device.nodes,
        gpus_per_node=device.gpus_per_node,
        captured_gpu=manifest.gpu,
        versions=dict(sorted(manifest.versions.items())),
        parameters=manifest.model.get("parameters"),
        parameters_local=manifest.model.get("parameters_local"),
    )


def _first_step_s(steps: TraceSteps, connected: Connecting | None) -> float | None:
    if not steps.counted:
        return None
    return steps.steps[0].duration_ns / 1e9 + (connected.in_first_step_s if connected else 0.0)


def _steps(run: _Run, connected: Connecting | None) -> StepFigures:
    steps, facts = run.steps, run.priced.trace.manifest.step
    spread = step_spread(steps)
    return StepFigures(
        count=steps.counted,
        times_s=[step.duration_ns / 1e9 for step in steps.steps],
        steady_index=steps.steady_index,
        steady=steps.is_steady,
        setup_s=steps.steps[0].start_ns / 1e9 + (connected.before_s if connected else 0.0),
        connecting=connected,
        loop=facts.loop,
        iterations=facts.iterations,
        updates=facts.updates,
        phases=step_phases(run.priced.trace, run.timeline, steps),
        mean_s=spread.mean_s,
        median_s=spread.median_s,
        min_s=spread.min_s,
        max_s=spread.max_s,
        added_wait_s=steps.added_wait_ns / 1e9,
        unusual=unusual_steps(run.priced.trace, run.timeline, steps),
    )


def _time(run: _Run) -> Time:
    parts = run.parts
    spent = {kind: value / 1e9 for kind, value in parts.spent_ns.items()}
    return Time(
        compute_s=spent[Instant.COMPUTE],
        communication_s=parts.communication_ns / 1e9,
        exposed_communication_s=spent[Instant.EXPOSED_COMMUNICATION] + spent[Instant.WAITING],
        waiting_s=spent[Instant.WAITING],
        copy_s=parts.copy_ns / 1e9,
        exposed_copy_s=spent[Instant.EXPOSED_COPY],
        host_bound_s=spent[Instant.HOST_BOUND],
        idle_s=spent[Instant.IDLE],
        contention_s=parts.contention_ns / 1e9,
        shared_ports_s=parts.ports_ns / 1e9,
        compute_streams=list(parts.compute_streams),
        by_phase=by_phase(run.priced.trace, parts, run.steps.steady),
    )


def memory_of(
    priced: PricedTrace, timeline: Timeline, device: Device, memory_trace: Trace | None = None, *, brief: bool = False
) -> Memory:
    """Device memory of one rank; ``memory_trace`` and ``brief`` as in `summarise`."""
    return _memory(priced, timeline, find_steps(priced.trace, timeline), device, memory_trace, brief=brief)


def _memory(
    priced: PricedTrace,
    timeline: Timeline,
    steps: TraceSteps,
    device: Device,
    memory_trace: Trace | None,
    *,
    brief: bool,
) -> Memory:
    manifest = priced.trace.manifest
    captured_here = manifest.gpu == device.gpu
    outside_estimates = outside_allocator(
        priced.trace,
        context_bytes=device.context_bytes,
        context_source=device.context_source,
    )
    return analyse_memory(
        priced.trace,
        timeline,
        steps.steady,
        device_total_bytes=device.memory_bytes,
        outside_estimates=outside_estimates,
        captured_here=captured_here,
        memory_trace=memory_trace,
        brief=brief,
    )
