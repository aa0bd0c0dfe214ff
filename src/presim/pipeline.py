"""From traces to a result: price, simulate, analyse; what `run` does after capture and `simulate` after loading."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.analysis.notes.caveats import PEERS_READY
from presim.analysis.notes.coverage import coverage_figures, coverage_sentences
from presim.analysis.notes.routing_draws import unseen_ranks
from presim.analysis.notes.shared_links import shared_links
from presim.analysis.ranks import fullest, pace, rank_figures, unmatched
from presim.analysis.summarise import Device, looked_at, memory_of, summarise
from presim.analysis.time.breakdown import Breakdown, break_down
from presim.analysis.time.flops import arithmetic_dtype
from presim.analysis.time.repetition import repeated_steps, stretches
from presim.analysis.time.steps import Steps, find_steps
from presim.changes import Changes
from presim.cost.chain import Chain, price_trace
from presim.cost.collectives.contended import described_network
from presim.cost.collectives.fabric_flows import on_fabric
from presim.cost.price import PricedTrace
from presim.cost.price_cache import with_caches
from presim.engine.calls import NO_CALLS
from presim.engine.options import Options
from presim.engine.simulate import simulate_job
from presim.engine.timeline import Timeline
from presim.errors import InputError
from presim.hardware import catalogue
from presim.hardware.cluster import Cluster
from presim.hardware.host import host_factor
from presim.mixed_clusters import Views, apart_by_group, apart_by_link, group_notes, slowed_collectives, tightest
from presim.result import Coverage, Memory, Rank, Result
from presim.trace.capture_speed import on_idle_machine, slowdown_between
from presim.trace.coverage import RankCoverage
from presim.trace.host_noise import without_host_noise
from presim.trace.representatives import Representatives
from presim.trace.schema import Manifest, Measured, Trace


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What reports are made of: one rank's priced trace, its timeline, and the figures; all ranks' timelines."""

    priced: PricedTrace
    timeline: Timeline
    result: Result
    timelines: Mapping[int, Timeline]  # of every rank that was captured
    device: Device  # what the figures were held against
    ranks: Mapping[int, PricedTrace]  # of every simulated rank
    representatives: Representatives
    options: Options  # of the engine, with the factor of the hosts
    cluster: Cluster


def evaluate(
    traces: Trace | Sequence[Trace],
    cluster: Cluster,
    options: Options | None = None,
    *,
    rank: int | None = None,
    stands_for: Mapping[int, Sequence[int]] | None = None,
    coverage: RankCoverage | None = None,
    notes: Sequence[str] = (),
    prices: Sequence[Path] = (),
    chain: Callable[[Trace], Chain] | None = None,
    changes: Changes | None = None,
    prepared: Prepared | None = None,
    pricer: Callable[[Trace, Cluster], PricedTrace] | None = None,
    brief: bool = False,
    repeats: Repeats | None = None,
) -> Evaluation:
    """Price the traces of a job for a cluster, simulate them together, and report on one rank.

    ``rank``: the global rank to report on; the lowest that was captured unless given. ``stands_for``: captured rank ->
    the other ranks that do as it does. ``coverage``: which ranks were run and compared. ``notes``: what a reader should
    know of the ranks. ``prices``: folders with measured tables and learned models. ``chain``: who prices a trace;
    presim's own unless given.
    ``changes``: what is to be otherwise than it was captured or is described. ``prepared``: what `prepare`
    returned, for callers that evaluate a job again. ``pricer``: prices a trace, in place of ``prices`` and ``chain``.
    ``brief``: without the tables by operator, family and module. ``repeats``: the traces lack micro-batches, which the
    result is to count; raises `NotRepeatedError` where the simulation does not prove that they would only repeat.
    """
    given_traces = [traces] if isinstance(traces, Trace) else list(traces)
    prepared = prepared or prepare(given_traces, rank=rank)
    captured, undisturbed, slowdown = prepared.traces, prepared.undisturbed, prepared.slowdown
    chosen = _choose(captured, rank)
    _check_size(chosen, cluster)
    changes, given = changes or Changes(), options or Options()
    changes.check_operators(captured)
    differ = apart_by_group(cluster) or apart_by_link(captured, changes.cluster(cluster) if changes.failed else cluster)
    simulated, spoken_for = changes.split_ranks(captured, stands_for or {}, cluster, differ)
    views, before = Views(cluster, changes), cluster.as_seen_by(chosen.manifest.rank)
    cluster = views.of(chosen.manifest.rank)
    options = _for_host(given, cluster, chosen.manifest, undisturbed)
    pricer = pricer or _pricer(prices, chain)
    simulated = [views.on_own_host(trace, given, options, undisturbed=undisturbed) for trace in simulated]
    representatives = Representatives([trace.manifest.rank for trace in simulated], spoken_for)
    priced = {}
    for trace in simulated:
        number = trace.manifest.rank
        seen_by = views.of(number)
        priced[number] = changes.prices(on_fabric(pricer(trace, seen_by), seen_by, representatives), cluster)
    timelines = simulate_job(list(priced.values()), options=options, representatives=representatives)
    mine, timeline = priced[chosen.manifest.rank], timelines[chosen.manifest.rank]
    device = device_of(cluster, chosen, options, host=_whose(given, cluster), slowdown=slowdown)
    seen = _seen(priced, timelines, repeats, options.launch_latency_ns)
    ranks = [
        rank_figures(priced[number].trace, seen[number][0].steady, seen[number][1], representatives.count(number))
        for number in sorted(priced)
    ]
    coverage_, covered = _coverage(captured, stands_for, coverage)
    changed = changes.sentences(before, len(simulated), len(captured))
    groups = group_notes(views.cluster, ranks)
    said = [
        *changed,
        *slowed_collectives(priced, views),
        *groups,
        *mine.said,
        *shared_links(priced, timelines, described_network(cluster)[1].link_name if cluster.network else str),
        *covered,
        *_of_ranks(simulated, representatives),
        *notes,
        *pace(ranks),
    ]
    whole = repeats.memory if repeats else {}
    full = fullest([whole.get(trace.manifest.rank, trace) for trace in captured])
    most = tightest(priced, views, full, {rank.rank: rank.peak_reserved_bytes for rank in ranks})
    own = device if not groups else device_of(views.of(most), priced[most].trace, options)
    of_another = most != chosen.manifest.rank
    memory = _memory_of_another(priced[most], timelines[most], own, whole.get(most)) if of_another else None
    number = chosen.manifest.rank
    summary = summarise(mine, timeline, device, captured, seen=seen[number], brief=brief, whole=whole.get(number))
    result = _of_the_job(summary, ranks, coverage_, said, memory)
    return Evaluation(mine, timeline, result, timelines, device, priced, representatives, options, cluster)


@dataclasses.dataclass(frozen=True)
class Repeats:
    """What a job's traces lack: so many times the micro-batches of one period."""

    begins: Mapping[int, NDArray[np.int64]]  # by rank: the entries at which micro-batches begin
    memory: Mapping[int, Trace]  # by rank: what happens to memory in all micro-batches
    period: int  # micro-batches that repeat together
    times: int


class NotRepeatedError(Exception):
    """The simulation of a few micro-batches does not show that more of them would only repeat."""


def _seen(
    priced: Mapping[int, PricedTrace], timelines: Mapping[int, Timeline], repeats: Repeats | None, latency_ns: int
) -> dict[int, tuple[Steps, Breakdown]]:
    """Each rank's steps, and where the time of the steady one goes."""
    traces = {rank: one.trace for rank, one in priced.items()}
    if repeats is None:
        return {rank: looked_at(trace, timelines[rank], latency_ns) for rank, trace in traces.items()}
    if not traces.keys() <= repeats.begins.keys():
        raise NotRepeatedError
    in_order = [timelines[rank] for rank in traces], [repeats.begins[rank] for rank in traces]
    found = stretches(list(traces.values()), *in_order, repeats.period)
    if found is None:
        raise NotRepeatedError
    result = {}
    for place, (rank, trace) in enumerate(traces.items()):
        steps = find_steps(trace, timelines[rank])
        stretch = found[steps.steady_index]
        again = (stretch.start_ns, stretch.end_ns, repeats.times)
        parts = break_down(trace, timelines[rank], steps.steady, launch_latency_ns=latency_ns, again=again)
        result[rank] = repeated_steps(steps, found, place, repeats.times), parts
    return result


def _pricer(prices: Sequence[Path], chain: Callable[[Trace], Chain] | None) -> Callable[[Trace, Cluster], PricedTrace]:
    """The prices of ranks with one environment are looked up together."""
    known: dict[tuple[tuple[tuple[str, str], ...], str, str, str], Chain] = {}

    def price(trace: Trace, cluster: Cluster) -> PricedTrace:
        if chain is not None:
            return price_trace(trace, cluster, chain(trace), prices=prices)
        nccl = trace.manifest.nccl
        name = (tuple(sorted(nccl.items())), cluster.gpu.id, cluster.node.id, cluster.fabric.id)
        if name not in known:
            known[name] = with_caches(Chain.default(cluster, nccl, prices))
        return price_trace(trace, cluster, known[name], prices=prices)

    return price


def _coverage(
    captured: Sequence[Trace], stands_for: Mapping[int, Sequence[int]] | None, coverage: RankCoverage | None
) -> tuple[Coverage, list[str]]:
    """Which ranks the result rests on, and what a reader should know of that."""
    world_size = captured[0].manifest.world_size
    by_capture = Representatives([trace.manifest.rank for trace in captured], stands_for)
    looked_at = coverage_figures(world_size, by_capture, coverage or RankCoverage())
    stopped = any(trace.manifest.exit == "stopped" for trace in captured)
    composed = all(trace.manifest.origin == "composed" for trace in captured)
    return looked_at, coverage_sentences(world_size, looked_at, stopped=stopped, composed=composed)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A job's traces with host times as on an idle machine."""

    traces: list[Trace]
    undisturbed: bool  # whether host noise was removed
    slowdown: float | None  # how much longer the reported rank's host time was before; None: too little is known


def prepare(traces: Sequence[Trace], *, rank: int | None = None) -> Prepared:
    """Remove what the capturing machine did to host times; ``rank`` as in `evaluate`."""
    given = list(traces)
    if all(trace.manifest.origin == "composed" for trace in given):
        return Prepared(given, True, None)
    idle = [on_idle_machine(trace) for trace in given]
    captured = without_host_noise(idle)
    undisturbed = any(mine is not theirs for mine, theirs in zip(captured, idle))
    return Prepared(captured, undisturbed, slowdown_between(_choose(given, rank), _choose(idle, rank)))


def _of_ranks(captured: Sequence[Trace], representatives: Representatives) -> list[str]:
    meets = unmatched(captured, representatives) if len(captured) > 1 else ()
    return [*meets, *unseen_ranks(captured)]


def _of_the_job(
    result: Result, ranks: Sequence[Rank], looked_at: Coverage, said: Sequence[str], memory: Memory | None
) -> Result:
    """One rank's result with what is known of the others; ``memory`` where another rank's is the fullest."""
    single = len(ranks) == 1
    return msgspec.structs.replace(
        result,
        memory=memory or result.memory,
        ranks=list(ranks),
        coverage=looked_at,
        notes=[*result.misuse, *said, *result.notes],
        not_modelled=[sentence for sentence in result.not_modelled if single or sentence != PEERS_READY],
    )


def _memory_of_another(fullest_rank: PricedTrace, timeline: Timeline, device: Device, whole: Trace | None) -> Memory:
    memory = memory_of(fullest_rank, timeline, device, whole)
    rank = fullest_rank.trace.manifest.rank
    return msgspec.structs.replace(memory, verdict=f"Rank {rank}, the fullest: {memory.verdict}")


def _for_host(options: Options, cluster: Cluster, manifest: Manifest, undisturbed: bool) -> Options:
    """With the factor of the cluster's hosts, where none is given; a profile's host times have its calls in them."""
    if manifest.measured is not None:
        return dataclasses.replace(
            options, host_factor=_of_profile(options, cluster, manifest.measured), calls=NO_CALLS
        )
    if options.host_factor is not None:
        return options
    server = cluster.node.host_factor
    factor = host_factor(manifest.reference_host, manifest.host_probe_ns, server, undisturbed=undisturbed)
    return dataclasses.replace(options, host_factor=factor)


def _of_profile(options: Options, cluster: Cluster, measured: Measured) -> float:
    """Host times of a profile are those of its own hosts: on another type of node they go by the nodes' factors."""
    if options.host_factor is not None or measured.node == cluster.node.id:
        return 1.0 if options.host_factor is None else options.host_factor
    before = host_factor(True, server=catalogue.node(measured.node).host_factor)
    return round(host_factor(True, server=cluster.node.host_factor) / before, 3)


def _whose(options: Options, cluster: Cluster) -> str:
    """Where the factor of host time comes from, in words."""
    if options.host_factor is not None:
        return "as --host-factor says"
    node = cluster.node
    return f"as for hosts of {node.id}" if node.host_factor else "as for a typical GPU server"


def device_of(
    cluster: Cluster, trace: Trace, options: Options, host: str = "", slowdown: float | None = None
) -> Device:
    """The facts about a cluster that the figures are held against.

    ``host``: where the factor of host time is from. ``slowdown``: what host time was divided by for what else the
    machine did that captured; None where that is not known.
    """
    gpu = cluster.gpu
    dtypes = {dtype for signature in trace.signatures if (dtype := arithmetic_dtype(signature))}
    peaks = {dtype: peak for dtype in sorted(dtypes) if (peak := gpu.peak(dtype))}
    context = gpu.source("context_MiB")
    return Device(
        gpu=gpu.id,
        gpu_name=gpu.name,
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
        memory_bytes=gpu.memory_bytes,
        context_bytes=gpu.context_bytes,
        context_source=context.text if context else f"hardware catalogue, {gpu.id}",
        peak_flops=peaks,
        contention=options.contention,
        host_factor=options.host_factor_of(trace.manifest),
        host=host,
        slowdown=slowdown,
        calls=options.calls,
        launch_latency_ns=options.launch_latency_ns,
        power_w=gpu.power_w,
    )


def _choose(traces: list[Trace], rank: int | None) -> Trace:
    by_rank = {trace.manifest.rank: trace for trace in traces}
    if not by_rank:
        raise ValueError("a job has at least one trace")
    if rank is not None and rank not in by_rank:
        raise InputError(f"rank {rank} was not captured; the job has {_listing(sorted(by_rank))}")
    return by_rank[min(by_rank) if rank is None else rank]


def _listing(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{', …' if len(ranks) > 8 else ''}"


def _check_size(trace: Trace, cluster: Cluster) -> None:
    """A trace holds the message sizes of its own world: for another it has to be captured again."""
    wanted = trace.manifest.world_size
    if cluster.world_size != wanted:
        raise InputError(
            f"the trace is of a job of world size {wanted}, but nodes x GPUs are {cluster.nodes} x "
            f"{cluster.gpus_per_node} = {cluster.world_size}; choose --nodes and --gpus-per-node that make {wanted} or "
            "capture again"
        )
