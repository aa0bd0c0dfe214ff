"""A planned case as a run: captured by its recipe, changed to what the published run had, simulated, extrapolated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from presim.analysis.time.steps import find_steps
from presim.cost.chain import Chain, price_trace
from presim.engine.calls import NO_CALLS
from presim.engine.simulation_options import Options
from presim.engine.timeline import Timeline
from presim.evaluation.evaluate_traces import Evaluation, Pricer, evaluate
from presim.hardware.cluster import Cluster
from presim.trace.capture_speed import on_idle_machine
from presim.trace.fp8_attention import with_fp8_attention
from presim.trace.job import Job
from presim.trace.schema import Kind, Trace
from presim_study.as_graphs import as_graphs
from presim_study.between_steps import longer_between_steps
from presim_study.captures import Captures
from presim_study.fused_router import with_fused_routers
from presim_study.gathered_ahead import gathered_ahead
from presim_study.plan import Plan


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """A plan, with the captures that its traces come from."""

    plan: Plan
    captures: Captures
    what: str = "recipe"

    @property
    def cluster(self) -> Cluster:
        """The cluster to predict."""
        return self.plan.cluster

    def on(self, cluster: Cluster) -> PlannedRun:
        """The same plan on another cluster."""
        return dataclasses.replace(self, plan=dataclasses.replace(self.plan, cluster=cluster))

    def traces(self) -> list[Trace]:
        """The captures of the plan's ranks, `as_published`."""
        return [as_published(self.plan, trace) for trace in self.captures.traces(self.plan)]

    def stands_for(self) -> Mapping[int, Sequence[int]]:
        """Nothing: a captured rank stands for those above it, up to the next captured one."""
        return {}

    def evaluate(self, traces: Sequence[Trace], options: Options | None) -> Evaluation:
        """Price and simulate the traces."""
        return simulate(self.plan, traces, options)

    def step_s(self, traces: Sequence[Trace], evaluation: Evaluation) -> float | None:
        """Seconds of the step that was published."""
        return step_s(self.plan, traces, evaluation)


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
    plan: Plan,
    traces: Sequence[Trace],
    options: Options | None = None,
    chain: Callable[[Trace], Chain] | None = None,
    *,
    pricer: Pricer | None = None,
) -> Evaluation:
    """The traces of a plan's ranks, `as_published`, on hosts that do what the published run's did.

    ``chain``: prices of a trace, instead of presim's own; ``pricer``: priced traces.
    """
    pricer = pricer if chain is None else _pricer_by(chain)
    return evaluate(Job(traces), plan.cluster, _hosts(plan, options), rank=plan.ranks[0], pricer=pricer)


def _pricer_by(chain: Callable[[Trace], Chain]) -> Pricer:
    return lambda trace, cluster: price_trace(trace, cluster, chain(trace))


def step_s(plan: Plan, traces: Sequence[Trace], evaluation: Evaluation) -> float | None:
    """Seconds of a step that has its input, with all micro-batches where fewer were captured; None: no step came.

    Of the steps that the published time is the mean of, where one of them warms up.
    """
    steady, times = evaluation.result.step_time_s, evaluation.result.steps.times_s
    if steady is None:
        return None
    if plan.logged_at > 2 and len(times) >= 3:
        steady = (times[1] + (plan.logged_at - 2) * steady) / (plan.logged_at - 1)
    if plan.repeats is None or len(times) < 3:
        return max(steady, plan.input_s)
    busy_s = max(further_work_s(trace, evaluation.timelines[trace.manifest.rank]) for trace in traces)
    return max(float(plan.repeats.step_time(times[1], times[2], busy_s)), plan.input_s)


def _hosts(plan: Plan, options: Options | None) -> Options | None:
    """Hosts that launch nothing, where the published run's iteration is made of CUDA graphs."""
    if not plan.graphs:
        return options
    return dataclasses.replace(options or Options(), host_factor=0.0, calls=NO_CALLS)


def further_work_s(trace: Trace, timeline: Timeline) -> float:
    """How much longer the third step keeps a rank's busiest stream at work than the second."""
    lasts = np.where(trace.mask(Kind.WORK), timeline.end_ns - timeline.start_ns, 0)
    streams = trace.columns["stream"].astype(np.int64)
    second, third = (
        np.bincount(streams[step.entries], lasts[step.entries], minlength=int(streams.max()) + 1)
        for step in find_steps(trace, timeline).steps[1:3]
    )
    return float((third - second).max()) / 1e9
