"""Evaluates traces: price, simulate, analyse. `run` does this after capture and `simulate` after loading."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from presim.analysis.notes.caveats import PEERS_READY
from presim.analysis.notes.coverage_notes import coverage_figures, coverage_sentences, stop_sentences
from presim.analysis.notes.routing_draws import unseen_ranks
from presim.analysis.own_analyses import BUILT_IN, JobView, analyse, analyse_by_plugins
from presim.analysis.rank_figures import find_fullest_rank, rank_figures, unmatched_group_note
from presim.analysis.repeated_batches import Repeats, break_down_ranks
from presim.analysis.summarise import Device, memory_of, summarise
from presim.analysis.time.throughput import with_uneven_ranks
from presim.cost.chain import Chain, price_trace
from presim.cost.collectives.fabric_flows import on_fabric
from presim.cost.collectives.fabric_traffic import described_network
from presim.cost.overlap import ANALYTIC, described
from presim.cost.price import PricedTrace
from presim.cost.price_cache import with_caches
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.engine.timeline import Timeline
from presim.errors import InputError
from presim.evaluation.idle_machine import Prepared, choose_trace, prepare
from presim.evaluation.mixed_clusters import Views, differing_ranks, group_notes, slowed_collectives, tightest
from presim.evaluation.target import device_of, engine_options, host_factor_source
from presim.evaluation.what_if import Changes
from presim.hardware.cluster import Cluster
from presim.result import Coverage, Memory, Rank, Result
from presim.trace.job import Job
from presim.trace.representatives import Representatives
from presim.trace.schema import Trace


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Input of all reports: the result, and the priced traces and timelines that it is derived from."""

    priced: PricedTrace  # of the reported rank
    timeline: Timeline  # of the reported rank
    result: Result
    timelines: Mapping[int, Timeline]  # of every simulated rank
    device: Device  # facts about the reported rank's GPU and host
    ranks: Mapping[int, PricedTrace]  # of every simulated rank
    representatives: Representatives
    options: Options  # of the engine, with the host factor
    cluster: Cluster


Pricer: TypeAlias = Callable[[Trace, Cluster], PricedTrace]


def evaluate(
    job: Job,
    cluster: Cluster,
    options: Options | None = None,
    *,
    rank: int | None = None,
    prices: Sequence[Path] = (),
    pricer: Pricer | None = None,
    changes: Changes | None = None,
    prepared: Prepared | None = None,
    brief: bool = False,
    repeats: Repeats | None = None,
) -> Evaluation:
    """Price the traces of a job for a cluster, simulate them together, and report on one rank.

    Args:
        job: traces of the captured ranks, and which ranks they represent.
        cluster: the cluster to predict.
        options: options of the engine.
        rank: global rank to report on; by default the lowest captured rank.
        prices: folders with the user's own prices.
        pricer: prices a trace, in place of presim's own chain with ``prices``.
        changes: changes to the captured job or the cluster.
        prepared: result of `prepare`, for callers that evaluate a job repeatedly.
        brief: leave out the tables by operator, family and module.
        repeats: micro-batches that the traces lack and the result includes.

    Raises:
        InputError: the rank was not captured, the cluster has another world size, or a change is impossible.
        NotRepeatedError: the simulation does not prove that the micro-batches of ``repeats`` only repeat.
    """
    prepared = prepared or prepare(job.traces, rank=rank)
    reported_trace = choose_trace(prepared.traces, rank)
    _check_size(reported_trace, cluster)
    views = Views(cluster, changes or Changes())
    simulation = _simulate(
        prepared, reported_trace, views, options or Options(), job.stands_for, pricer or pricer_of(prices)
    )
    coverage_report = _coverage(prepared.traces, job)
    result = _report(simulation, prepared, coverage_report, job.notes, brief=brief, repeats=repeats)
    reported_rank = simulation.rank
    return Evaluation(
        priced=simulation.priced[reported_rank],
        timeline=simulation.timelines[reported_rank],
        result=result,
        timelines=simulation.timelines,
        device=simulation.device,
        ranks=simulation.priced,
        representatives=simulation.representatives,
        options=simulation.options,
        cluster=simulation.cluster,
    )


@dataclasses.dataclass(frozen=True)
class _Simulation:
    """A simulated job, before it is analysed."""

    rank: int  # to report on
    traces: Sequence[Trace]  # of every simulated rank, with host time of its own node
    priced: Mapping[int, PricedTrace]
    timelines: Mapping[int, Timeline]
    representatives: Representatives
    views: Views
    cluster: Cluster  # as seen by the reported rank, with changes
    options: Options
    device: Device
    splits: Mapping[int, int]  # simulated rank -> the rank whose trace it has, where that is another one


def _simulate(
    prepared: Prepared,
    reported_trace: Trace,
    views: Views,
    requested_options: Options,
    stands_for: Mapping[int, Sequence[int]],
    pricer: Callable[[Trace, Cluster], PricedTrace],
) -> _Simulation:
    """Price the prepared traces on their own nodes and simulate them together."""
    captured, base_cluster, changes = prepared.traces, views.cluster, views.changes
    changes.check_operators(captured)
    rank_differences = differing_ranks(captured, base_cluster, changes)
    split, represented = changes.split_ranks(captured, stands_for, base_cluster, rank_differences)
    rank, cluster = reported_trace.manifest.rank, views.of(reported_trace.manifest.rank)
    options = engine_options(requested_options, cluster, reported_trace.manifest, prepared.undisturbed)
    traces = [views.on_own_host(trace, requested_options, options, undisturbed=prepared.undisturbed) for trace in split]
    representatives = Representatives([trace.manifest.rank for trace in traces], represented)
    priced = {}
    for trace in traces:
        rank_cluster = views.of(trace.manifest.rank)
        repriced = changes.reprice(pricer(trace, rank_cluster), rank_cluster)
        priced[trace.manifest.rank] = changes.prices(on_fabric(repriced, rank_cluster, representatives), cluster)
    timelines = simulate_job(list(priced.values()), options=options, representatives=representatives)
    device = device_of(
        cluster,
        reported_trace,
        options,
        host=host_factor_source(requested_options, cluster),
        slowdown=prepared.slowdown,
    )
    splits = _splits(captured, stands_for, priced)
    return _Simulation(rank, traces, priced, timelines, representatives, views, cluster, options, device, splits)


def _splits(
    captured: Sequence[Trace], stands_for: Mapping[int, Sequence[int]], simulated: Iterable[int]
) -> dict[int, int]:
    """By rank that is simulated and was not captured, the captured rank that represented it."""
    new = set(simulated) - {trace.manifest.rank for trace in captured}
    return {rank: origin for origin, ranks in stands_for.items() for rank in new.intersection(ranks)} if new else {}


def _report(
    job: _Simulation,
    prepared: Prepared,
    coverage_report: tuple[Coverage, list[str]],
    notes: Sequence[str],
    *,
    brief: bool,
    repeats: Repeats | None,
) -> Result:
    """The result of the reported rank, with figures of all ranks and the memory of the fullest one."""
    if repeats is not None:
        repeats = repeats.of_ranks(job.priced, job.splits)
    breakdowns = break_down_ranks(job.priced, job.timelines, repeats, job.options.launch_latency_ns)
    ranks = [
        rank_figures(
            job.priced[number].trace,
            breakdowns[number][0].steady,
            breakdowns[number][1],
            job.representatives.count(number),
        )
        for number in sorted(job.priced)
    ]
    figures, coverage_notes = coverage_report
    view = JobView(job.priced, job.timelines, ranks, job.rank, job.cluster, _link_name(job.cluster))
    analyses = [] if brief else analyse_by_plugins(view)
    capture_notes = [*coverage_notes, *_rank_notes(job.traces, job.representatives), *notes]
    all_notes = _notes(job, prepared, view, capture_notes)
    all_notes += [note for analysis in analyses for note in analysis.notes]
    memory_traces = repeats.memory if repeats else {}
    summary = summarise(
        job.priced[job.rank],
        job.timelines[job.rank],
        job.device,
        prepared.traces,
        broken_down=breakdowns[job.rank],
        brief=brief,
        memory_trace=memory_traces.get(job.rank),
    )
    counts = {trace.manifest.rank: job.representatives.count(trace.manifest.rank) for trace in prepared.traces}
    manifests = {trace.manifest.rank: trace.manifest for trace in prepared.traces}
    job_throughput = with_uneven_ranks(
        summary.throughput, manifests, counts, job.rank, breakdowns[job.rank][0].steady_index
    )
    summary = msgspec.structs.replace(summary, throughput=job_throughput, analyses=analyses)
    return _with_job_figures(
        summary, ranks, figures, all_notes, _memory_of_fullest(job, prepared.traces, ranks, memory_traces, brief=brief)
    )


def _link_name(cluster: Cluster) -> Callable[[int], str]:
    return described_network(cluster).link_name if cluster.network else str


def _notes(job: _Simulation, prepared: Prepared, view: JobView, of_capture: Sequence[str]) -> list[str]:
    """All notes on a job, in display order; ``of_capture``: those on captured ranks."""
    answers = analyse(view, list(BUILT_IN))
    original_cluster = job.views.cluster.as_seen_by(job.rank)
    return [
        *job.views.changes.sentences(original_cluster, len(job.traces), len(prepared.traces)),
        *_overlap_note(job.options),
        *slowed_collectives(job.priced, job.views),
        *group_notes(job.views.cluster, view.figures),
        *job.priced[job.rank].notes,
        *answers["shared links"].notes,
        *of_capture,
        *answers["straggler"].notes,
    ]


def _overlap_note(options: Options) -> list[str]:
    """A sentence on the model of overlap, if it is not presim's own."""
    if options.overlap == ANALYTIC or not options.contention:
        return []
    return [f"What if: kernels beside communication are slowed as {described(options.overlap)} says."]


def pricer_of(prices: Sequence[Path], chain: Chain | None = None) -> Pricer:
    """A function that prices a trace, by ``chain`` or presim's own.

    Ranks with the same environment share a chain and its cache. ``prices``: folders with the user's own prices.
    """
    chains: dict[tuple[tuple[tuple[str, str], ...], str, str, str], Chain] = {}

    def price(trace: Trace, cluster: Cluster) -> PricedTrace:
        if chain is not None:
            return price_trace(trace, cluster, chain, prices=prices)
        nccl = trace.manifest.nccl
        environment = (tuple(sorted(nccl.items())), cluster.gpu.id, cluster.node.id, cluster.fabric.id)
        if environment not in chains:
            chains[environment] = with_caches(Chain.default(cluster, nccl, prices))
        return price_trace(trace, cluster, chains[environment], prices=prices)

    return price


def _coverage(captured: Sequence[Trace], job: Job) -> tuple[Coverage, list[str]]:
    """Counts of captured and represented ranks, and notes on them."""
    world_size = captured[0].manifest.world_size
    if captured[0].manifest.devices > 1:  # one process
        world_size = 1
    by_capture = Representatives([trace.manifest.rank for trace in captured], job.stands_for)
    figures = coverage_figures(world_size, by_capture, job.coverage)
    stopped = any(trace.manifest.exit == "stopped" for trace in captured)
    composed = all(trace.manifest.origin == "composed" for trace in captured)
    sentences = coverage_sentences(world_size, figures, stopped=stopped, composed=composed)
    return figures, [*sentences, *(stop_sentences(figures, len(captured[0].steps())) if stopped else ())]


def _rank_notes(captured: Sequence[Trace], representatives: Representatives) -> list[str]:
    """Notes on groups without a counterpart and on ranks that were not run."""
    meets = unmatched_group_note(captured, representatives) if len(captured) > 1 else ()
    return [*meets, *unseen_ranks(captured)]


def _with_job_figures(
    result: Result, ranks: Sequence[Rank], coverage: Coverage, notes: Sequence[str], memory: Memory | None
) -> Result:
    """One rank's result with figures of all ranks; ``memory``: that of the fullest rank, if it is another one."""
    single = len(ranks) == 1
    return msgspec.structs.replace(
        result,
        memory=memory or result.memory,
        ranks=list(ranks),
        coverage=coverage,
        notes=[*result.misuse, *notes, *result.notes],
        not_modelled=[sentence for sentence in result.not_modelled if single or sentence != PEERS_READY],
    )


def _memory_of_fullest(
    job: _Simulation,
    captured: Sequence[Trace],
    ranks: Sequence[Rank],
    memory_traces: Mapping[int, Trace],
    *,
    brief: bool,
) -> Memory | None:
    """Memory of the fullest rank, if it is not the reported one.

    ``memory_traces``: by rank, a trace with the complete memory entries.
    """
    fullest_rank = find_fullest_rank([memory_traces.get(trace.manifest.rank, trace) for trace in captured])
    reserved = {rank.rank: rank.peak_reserved_bytes for rank in ranks}
    rank = tightest(job.priced, job.views, fullest_rank, reserved)
    if rank == job.rank:
        return None
    priced, device = job.priced[rank], job.device
    if job.views.cluster.groups:
        device = device_of(job.views.of(rank), priced.trace, job.options)
    memory = memory_of(priced, job.timelines[rank], device, memory_traces.get(rank), brief=brief)
    return msgspec.structs.replace(memory, verdict=f"Rank {rank}, the fullest: {memory.verdict}")


def _check_size(trace: Trace, cluster: Cluster) -> None:
    """Raise if the cluster has another world size: message sizes in a trace depend on it."""
    world_size = trace.manifest.world_size
    if cluster.world_size != world_size:
        raise InputError(
            f"the trace is of a job of world size {world_size}, but nodes x GPUs are {cluster.nodes} x "
            f"{cluster.gpus_per_node} = {cluster.world_size}; choose --nodes and --gpus-per-node with a product "
            f"of {world_size} or capture again"
        )
