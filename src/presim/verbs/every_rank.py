"""Simulate every rank of the world by itself, and draw jitter of hosts, GPUs and links (`--ranks-simulated all`)."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from presim.cost.collectives.fabric_flows import on_fabric
from presim.cost.price import PricedTrace
from presim.engine.every_rank import DrawOutcome, Factors, Floats, outcomes, window_of
from presim.engine.ops import host_ns
from presim.engine.timeline import Timeline
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import SimulateOptions
from presim.hardware import Cluster
from presim.result.every_rank import EveryRank, Straggler
from presim.system import budgets
from presim.trace.collective import Collective
from presim.trace.representatives import Representatives
from presim.trace.schema import WAITS, Kind
from presim.trace.splitting import as_rank
from presim.units import GIB, seconds

VARIES = {"hosts": "the CPU time of each node", "gpus": "the kernels of each GPU", "links": "each node's network links"}
_MOST_SPREAD = 1.0
_BYTES_OF_OP = 420  # while a draw runs: the loop's program and state, and what builds them
_OP_S = 0.4e-6  # of a draw: 11 million ops/s in the loop (benchmarks/results/engine.md), and as much again for factors
_DRAW_S = 1e-3
_SHOWN = 8


def with_every_rank(evaluation: Evaluation, cluster: Cluster, options: SimulateOptions) -> Evaluation:
    """The evaluation with `Result.every_rank` and a note on it, if the options request it.

    Raises:
        InputError: a jitter cannot be read, a rank is unknown, or the ranks need too much memory.
    """
    jitter = jitter_of(options.jitter)
    if options.ranks_simulated != "all" and not jitter:
        return evaluation
    budget = budgets.budget_of(options.budget) if options.budget else None
    ranks = every_rank(evaluation, options.jitter_draws if jitter else 0, budget)
    crosses = [_crosses_nodes(priced, cluster.as_seen_by(rank)) for rank, priced in enumerate(ranks)]
    world = range(cluster.world_size)
    places = [rank // cluster.gpus_per_node for rank in world]
    draws = options.jitter_draws if jitter else 0
    factors = _draws(jitter, options.seed, draws, cluster, places)
    simulated = list(outcomes(ranks, crosses, factors, evaluation.options))
    figures = _figures(simulated, jitter, options.seed, len(ranks))
    result = msgspec.structs.replace(
        evaluation.result, every_rank=figures, notes=[_sentence(figures), *evaluation.result.notes]
    )
    return dataclasses.replace(evaluation, result=result)


def jitter_of(texts: Sequence[str]) -> dict[str, float]:
    """The jitters from ``NAME=X`` texts; a text may hold several, separated by blanks or commas.

    Raises:
        InputError: a name is unknown or given twice, or a deviation is not a number in range.
    """
    spread_by_name: dict[str, float] = {}
    for setting in (word for text in texts for word in text.replace(",", " ").split()):
        name, equals, number = setting.partition("=")
        try:
            spread = float(number)
        except ValueError:
            spread = -1.0
        if name not in VARIES or not equals or not 0 <= spread <= _MOST_SPREAD:
            raise InputError(
                f"--jitter takes NAME=X with a relative standard deviation from 0 to {_MOST_SPREAD:g} of "
                f"{', '.join(VARIES)}; got {setting!r}"
            )
        if name in spread_by_name:
            raise InputError(f"--jitter {name} is given twice; leave one of them")
        spread_by_name[name] = spread
    return spread_by_name


def every_rank(evaluation: Evaluation, draws: int = 0, budget: budgets.Budget | None = None) -> list[PricedTrace]:
    """Each rank of the world in order, with the work and prices of the simulated rank that represents it.

    ``draws``: how often all of them will be simulated, within ``budget``; None is the default.

    Raises:
        InputError: a rank is unknown, or the ranks need too much memory or the draws too much time.
    """
    world = evaluation.result.job.world_size
    steady = evaluation.result.steps.steady_index
    representatives = _representatives(evaluation)
    steady_ranks = {
        rank: dataclasses.replace(priced, trace=window_of(priced.trace, steady))
        for rank, priced in evaluation.ranks.items()
    }
    ops = sum(_count_ops(steady_ranks[rank]) for rank in representatives)
    _check_memory(ops, world)
    estimate = budgets.Estimate(draws, "draws of --jitter-draws", draws * (_DRAW_S + ops * _OP_S))
    budgets.check(estimate, budget, "raise --budget, e.g. --budget 2h")
    all_ranks = _as_their_ranks(steady_ranks, representatives)
    by_itself = Representatives(range(world))
    return [on_fabric(priced, _seen_by(rank, evaluation.cluster), by_itself) for rank, priced in enumerate(all_ranks)]


@dataclasses.dataclass(frozen=True)
class RankFiles:
    """What files of ranks are written of: every rank of the world if all were simulated, else those that differ."""

    ranks: Mapping[int, PricedTrace]
    timelines: Mapping[int, Timeline]
    host_ns: Mapping[int, np.ndarray]  # CPU time before each entry on the cluster's hosts
    representatives: Representatives


def ranks_of_files(evaluation: Evaluation) -> RankFiles:
    """The ranks of ``--chakra`` and ``--kineto``, each with all entries of its representative, in its own groups.

    A rank's timeline is that of its representative: without jitter, ranks of equal work have equal times.

    Raises:
        InputError: all ranks were simulated, and a rank is unknown.
    """
    host = {rank: host_ns(priced.trace, evaluation.options) for rank, priced in evaluation.ranks.items()}
    if evaluation.result.every_rank is None:
        return RankFiles(evaluation.ranks, evaluation.timelines, host, evaluation.representatives)
    simulated = _representatives(evaluation)
    return RankFiles(
        dict(enumerate(_as_their_ranks(evaluation.ranks, simulated))),
        {rank: evaluation.timelines[representative] for rank, representative in enumerate(simulated)},
        {rank: host[representative] for rank, representative in enumerate(simulated)},
        Representatives(range(len(simulated))),
    )


def _representatives(evaluation: Evaluation) -> list[int]:
    """For each rank of the world the simulated rank that represents it."""
    world = evaluation.result.job.world_size
    representatives: list[int] = evaluation.representatives.of(np.arange(world)).tolist()
    unknown = [rank for rank, representative in enumerate(representatives) if representative < 0]
    if unknown:
        raise InputError(
            f"{len(unknown)} of {world} ranks, e.g. rank {unknown[0]}, are not known, because no captured rank "
            "represents them: capture the job with --ranks auto to simulate every rank"
        )
    return representatives


def _as_their_ranks(simulated: Mapping[int, PricedTrace], representatives: Sequence[int]) -> Iterator[PricedTrace]:
    for rank, representative in enumerate(representatives):
        priced = simulated[representative]
        yield priced if representative == rank else dataclasses.replace(priced, trace=as_rank(priced.trace, rank))


def _seen_by(rank: int, cluster: Cluster) -> Cluster:
    """A rank's view of the cluster, from any rank's view."""
    if not cluster.neighbours:
        return cluster
    remainder, *groups = cluster.neighbours
    parts = {"gpu": remainder.gpu, "node": remainder.node, "fabric": remainder.fabric}
    return msgspec.structs.replace(cluster, **parts, groups=tuple(groups), neighbours=()).as_seen_by(rank)


def _count_ops(priced: PricedTrace) -> int:
    return int(np.count_nonzero(priced.trace.mask(Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, *WAITS)))


def _check_memory(ops: int, world: int) -> None:
    """Raise `InputError` if the simulation does not fit this machine's free memory."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return
    if ops * _BYTES_OF_OP > max(free, GIB):
        raise InputError(
            f"{world:,} ranks simulated by themselves are {ops:,} kernels, collectives and events, which take about "
            f"{ops * _BYTES_OF_OP / GIB:.0f} GiB of memory, and {free / GIB:.0f} GiB are free; leave --ranks-simulated "
            "and --jitter out, or simulate fewer GPUs"
        )


def _crosses_nodes(priced: PricedTrace, cluster: Cluster) -> list[bool]:
    """For each signature, whether it is a collective between nodes."""
    groups = priced.trace.manifest.groups
    group_crosses = [len({cluster.domain(rank) for rank in group.ranks}) > 1 for group in groups]
    return [
        isinstance(signature, Collective) and 0 <= signature.group < len(groups) and group_crosses[signature.group]
        for signature in priced.trace.signatures
    ]


def _draws(
    jitter: Mapping[str, float], seed: int, draws: int, cluster: Cluster, places: Sequence[int]
) -> Iterator[Factors]:
    """Factors without jitter, then those of each draw; the draws of one kind do not depend on the other kinds."""
    ones = np.ones(len(places))
    yield Factors(ones, ones, ones)
    for draw in range(draws):

        def drawn(kind: int, count: int, spread: float, draw: int = draw) -> Floats:
            """Lognormal factors of mean 1."""
            width = np.sqrt(np.log1p(spread**2))
            normal = np.random.default_rng([seed, draw, kind]).standard_normal(count)
            result: Floats = np.exp(width * normal - width**2 / 2)
            return result

        yield Factors(
            hosts=drawn(0, cluster.nodes, jitter.get("hosts", 0.0))[places],
            gpus=drawn(1, len(places), jitter.get("gpus", 0.0)),
            links=drawn(2, cluster.nodes, jitter.get("links", 0.0))[places],
        )


def _figures(simulated: Sequence[DrawOutcome], jitter: dict[str, float], seed: int, ranks: int) -> EveryRank:
    baseline, *drawn = simulated
    times = [outcome.step_ns / 1e9 for outcome in drawn]
    low, middle, high = (float(value) for value in np.quantile(times, (0.1, 0.5, 0.9))) if times else (None,) * 3
    stragglers = collections.Counter(outcome.busiest for outcome in drawn if outcome.busiest >= 0).most_common(_SHOWN)
    return EveryRank(
        ranks_simulated=ranks,
        step_time_s=baseline.step_ns / 1e9,
        jitter=jitter,
        seed=seed,
        step_times_s=times,
        mean_s=float(np.mean(times)) if times else None,
        deviation_s=float(np.std(times, ddof=1)) if len(times) > 1 else None,
        p10_s=low,
        p50_s=middle,
        p90_s=high,
        stragglers=[Straggler(rank, count / len(drawn)) for rank, count in stragglers],
    )


def _sentence(figures: EveryRank) -> str:
    ranks = f"All {figures.ranks_simulated:,} ranks were simulated, each by itself"
    begin = f"{ranks}: a step takes {seconds(figures.step_time_s)}"
    if figures.mean_s is None or figures.p10_s is None or figures.p90_s is None:
        return f"{begin}."
    spread = ", ".join(f"{name} {value:.3g}" for name, value in figures.jitter.items())
    longer = figures.mean_s / figures.step_time_s - 1 if figures.step_time_s else 0.0
    return (
        f"{begin} without jitter and {seconds(figures.mean_s)} with it ({spread}; mean of {len(figures.step_times_s)} "
        f"draws, seed {figures.seed}; 10th to 90th percentile {seconds(figures.p10_s)} to {seconds(figures.p90_s)}), "
        f"{longer:+.1%}; "
        "the other figures are without jitter."
    )
