"""One case from its row to a prediction, through the same line as ``presim run``."""

from __future__ import annotations

import bisect
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager

import msgspec
import numpy as np

from presim.analysis.blocks import allocated_bytes, reserved_bytes
from presim.analysis.steps import find_steps
from presim.capture.ranks.process import end_with_parent
from presim.cost.chain import Chain
from presim.engine.calls import NO_CALLS
from presim.engine.options import Options
from presim.engine.timeline import Timeline
from presim.errors import CaptureError, InputError, PresimError
from presim.pipeline import Evaluation, evaluate
from presim.result import Result
from presim.trace.capture_speed import on_idle_machine
from presim.trace.schema import Kind, Trace
from presim.units import GIB
from presim.validation.as_graphs import as_graphs
from presim.validation.between_steps import longer_between_steps
from presim.validation.captures import Captures
from presim.validation.cases import CannotBuildError, Case
from presim.validation.fp8_attention import with_fp8_attention
from presim.validation.fused_router import with_fused_routers
from presim.validation.gathered_ahead import gathered_ahead
from presim.validation.plan import Plan
from presim.validation.planners import plan
from presim.validation.published import least_share
from presim.validation.results import RECIPE_FAILED, RUN_FAILED, Prediction

_ROOM = 2  # times the memory of a GPU that holds what the case's does not

_captures: Captures | None = None  # of this worker process


def solve(case: Case, captures: Captures, options: Options | None = None) -> Prediction:
    """What presim says about the case; why not, where it cannot."""
    begun = time.perf_counter()
    try:
        planned = plan(case)
        prediction = _predicted(case, planned, captures, options)
        if prediction.outcome == "out_of_memory" and case.number("step_time_s"):
            prediction = _with_room(case, planned, captures, options, prediction)
    except CannotBuildError as error:
        prediction = Prediction(reason=str(error))
    except (CaptureError, InputError) as error:
        prediction = Prediction(reason=f"{RUN_FAILED}: {_one_line(error)}")
    return dataclasses.replace(prediction, seconds=time.perf_counter() - begun)


def _predicted(case: Case, plan: Plan, captures: Captures, options: Options | None) -> Prediction:
    traces = [as_published(plan, trace) for trace in captures.traces(plan)]
    found = simulate(plan, traces, options)
    return _repeated(plan, traces, found, _prediction(case, plan, traces, found.result))


def _with_room(case: Case, plan: Plan, captures: Captures, options: Options | None, short: Prediction) -> Prediction:
    """What did not fit here was measured all the same: its time, on GPUs that have room for it, and what it needs."""
    gpu = plan.cluster.gpu
    larger = msgspec.structs.replace(gpu, memory_bytes=_ROOM * gpu.memory_bytes)
    roomy = dataclasses.replace(plan, cluster=msgspec.structs.replace(plan.cluster, gpu=larger))
    found = _predicted(case, roomy, captures, options)
    if found.outcome != "ok":
        return short
    reason = f"{short.reason}; time and memory are those of GPUs with {_ROOM} times the memory"
    return dataclasses.replace(found, outcome=short.outcome, reason=reason, memory_bytes=gpu.memory_bytes)


def as_published(plan: Plan, trace: Trace) -> Trace:
    """The capture with what the published run had and the recipe has not."""
    if plan.fused_router or plan.graphed or plan.between_steps_ns:
        trace = on_idle_machine(trace)  # told by operators of which some are gone below, and of times that are added to
    trace = with_fused_routers(trace) if plan.fused_router else trace
    trace = as_graphs(trace, plan.graphed)
    trace = gathered_ahead(trace) if plan.gathers_ahead else trace
    trace = with_fp8_attention(trace) if plan.fp8_attention else trace
    return longer_between_steps(trace, plan.between_steps_ns) if plan.between_steps_ns else trace


def simulate(
    plan: Plan, traces: Sequence[Trace], options: Options | None = None, chain: Callable[[Trace], Chain] | None = None
) -> Evaluation:
    """The traces of a plan's ranks, `as_published`, on hosts that do what the published run's did."""
    return evaluate(traces, plan.cluster, _hosts(plan, options), rank=plan.ranks[0], chain=chain)


def step_s(plan: Plan, traces: Sequence[Trace], found: Evaluation) -> float | None:
    """Seconds of a step that has its input, with all micro-batches where fewer were captured; None: no step came.

    Of the steps that the published time is the mean of, where one of them warms up.
    """
    steady, times = found.result.step_time_s, found.result.steps.times_s
    if steady is None:
        return None
    if plan.logged_at > 2 and len(times) >= 3:
        steady = (times[1] + (plan.logged_at - 2) * steady) / (plan.logged_at - 1)
    if plan.repeats is None or len(times) < 3:
        return max(steady, plan.input_s)
    busy_s = max(further_work_s(trace, found.timelines[trace.manifest.rank]) for trace in traces)
    return max(float(plan.repeats.step_time(times[1], times[2], busy_s)), plan.input_s)


def _prediction(case: Case, plan: Plan, traces: Sequence[Trace], result: Result) -> Prediction:
    """Of the ranks that were captured: the first one's time, the measured one's memory."""
    manifests = [trace.manifest for trace in traces]
    failed = next((manifest for manifest in manifests if manifest.exit not in ("ok", "stopped")), None)
    if failed is not None and failed.exit == "out_of_memory":
        reason = f"out of memory in the emulation: {_one_line(failed.error)}"
        return Prediction(outcome="out_of_memory", reason=reason)
    if failed is not None:
        return Prediction(reason=f"{RECIPE_FAILED}: {_one_line(failed.error)}")
    return Prediction(
        step_time_s=result.step_time_s,
        peak_mem_gib=_measured_peak(case, plan, traces) / GIB,
        low_step_time_s=result.step_time_low_s,
        high_step_time_s=result.step_time_high_s,
        outcome="ok",
        least_step_s=least_share(result, plan.cluster.gpu) * (result.step_time_s or 0.0),
        memory_bytes=plan.cluster.gpu.memory_bytes,
        provenance=" ".join(f"{share.name} {share.share:.0%}" for share in result.provenance.by_origin),
    )


def _hosts(plan: Plan, options: Options | None) -> Options | None:
    """Hosts that launch nothing, where the published run's iteration is made of CUDA graphs."""
    if not plan.graphs:
        return options
    return dataclasses.replace(options or Options(), host_factor=0.0, calls=NO_CALLS)


def _repeated(plan: Plan, traces: Sequence[Trace], found: Evaluation, prediction: Prediction) -> Prediction:
    """With the step's time for all of its micro-batches and their input; the interval grows alike."""
    step = step_s(plan, traces, found) if prediction.step_time_s else None
    if step is None or prediction.step_time_s is None:
        return prediction
    low, high = (
        bound and bound * step / prediction.step_time_s
        for bound in (prediction.low_step_time_s, prediction.high_step_time_s)
    )
    least = prediction.least_step_s * step / prediction.step_time_s
    return dataclasses.replace(
        prediction, step_time_s=step, low_step_time_s=low, high_step_time_s=high, least_step_s=least
    )


def _measured_peak(case: Case, plan: Plan, traces: Sequence[Trace]) -> int:
    """Bytes of the rank that was measured, for which the captured one at or below it stands; else of the fullest.

    From the ranks' own traces: a job's result has the memory of its fullest rank, whichever it reports on.
    """
    held = reserved_bytes if case.measured_memory()[1] == "reserved" else allocated_bytes
    peaks = [int(held(trace).max(initial=0)) for trace in traces]
    rank = case.measured_rank()
    if rank is None:
        return max(peaks)
    return peaks[-1] if rank < 0 else peaks[max(0, bisect.bisect_right(plan.ranks, rank) - 1)]


def further_work_s(trace: Trace, timeline: Timeline) -> float:
    """How much longer the third step keeps a rank's busiest stream at work than the second."""
    lasts = np.where(trace.mask(Kind.WORK), timeline.end_ns - timeline.start_ns, 0)
    streams = trace.columns["stream"].astype(np.int64)
    second, third = (
        np.bincount(streams[step.entries], lasts[step.entries], minlength=int(streams.max()) + 1)
        for step in find_steps(trace, timeline).steps[1:3]
    )
    return float((third - second).max()) / 1e9


def _one_line(error: object) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + " …"


def solve_all(
    cases: Sequence[Case], captures: Captures, jobs: int, options: Options | None = None
) -> Iterator[tuple[Case, Prediction]]:
    """The cases with their predictions, as they come about."""
    if jobs == 1:
        yield from ((case, solve(case, captures, options)) for case in cases)
        return
    with _pool(captures, jobs) as pool:
        pending = {pool.submit(_solve_here, case, options): case for case in cases}
        for future in as_completed(pending):
            yield pending[future], future.result()


@contextmanager
def _pool(captures: Captures, jobs: int) -> Iterator[ProcessPoolExecutor]:
    import multiprocessing

    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker, (captures, os.getpid()))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(captures: Captures, parent: int) -> None:
    global _captures
    end_with_parent(parent)  # which may be killed, and cannot end it then
    _captures = captures


def _solve_here(case: Case, options: Options | None) -> Prediction:
    if _captures is None:
        raise PresimError("a worker was not set up")
    return solve(case, _captures, options)
