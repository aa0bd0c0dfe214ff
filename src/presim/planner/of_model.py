"""Build the request of a search over a model's plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from presim.composition.passes.expert_parameters import expert_count
from presim.errors import InputError
from presim.evaluation.options import ClusterOptions, RunOptions
from presim.planner.frameworks.trainer import check_values, trainer_of, values_of
from presim.planner.knobs import CLUSTER, Extent, check_known, open_knobs, short
from presim.planner.search_options import SearchOptions, request_of
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space, parse_knobs
from presim.planner.strategy.prune import invalid_rules
from presim.planner.trials.point_evaluator import PlanEvaluator
from presim.planner.trials.trial import Value
from presim.planner.trials.trial_messages import Subject

if TYPE_CHECKING:
    from presim.hardware.cluster import Cluster


def request_for_model(
    model: str, settings: SearchOptions, options: RunOptions, fixed: Mapping[str, Value], command: Sequence[str] = ()
) -> SearchRequest:
    """Request for a search over a model's plans; ``fixed``: plan fields with one value; ``command`` captures the best.

    Raises:
        InputError: a knob is unknown, a value is invalid, the model cannot be traced, or a framework cannot be used.
    """
    from presim.composition.graph.take import open_graph

    varied = parse_knobs(settings.vary)
    for name in varied:
        check_known(name)
    if twice := [name for name in varied if name in fixed]:
        raise InputError(f"{short(twice[0])} is both fixed and varied: leave out one of the two")
    check_sequence(fixed, varied)
    trainer, framework_plans = trainer_of(model, settings)
    if trainer is not None:
        check_values(trainer.framework, {**varied, **{name: (value,) for name, value in fixed.items()}})
    graph = open_graph(model, settings.dtype)
    clusters = _clusters(varied, options)
    free = _free(graph, {**fixed, **varied}, clusters)
    free = free if trainer is None else values_of(trainer.framework, free)
    space = Space({**varied, **free}, dict(fixed))
    if command and not settings.confirm:
        raise InputError(
            f"{model} and a command are two different searches: leave out one, or add --confirm 5 to capture the best "
            "plans"
        )
    request = request_of(model, settings, options, space, graph=msgspec.msgpack.encode(graph))
    return dataclasses.replace(
        request,
        notes=[*request.notes, *_on_groups(clusters), *_changes(options, clusters)],
        confirm=settings.confirm,
        framework=settings.framework,
        trainer=trainer,
        framework_plans=framework_plans,
        confirm_command=list(command),
    )


def check_sequence(fixed: Mapping[str, Value], varied: Mapping[str, object]) -> None:
    """Raise where nothing says how many tokens a sample has.

    Raises:
        InputError: what to add.
    """
    if "sequence" not in fixed and "sequence" not in varied:
        raise InputError("a plan needs the sequence length: use --seq, e.g. --seq 4096")


def _clusters(varied: Mapping[str, Sequence[Value]], options: ClusterOptions) -> list[Cluster]:
    base = {name: getattr(options, name) for name in (*CLUSTER, "cluster")}
    parts = {name: tuple(varied[name]) for name in CLUSTER if name in varied}
    return [PlanEvaluator(Subject(options=base)).cluster(point) for point in Space(parts, {})]


def _on_groups(clusters: Sequence[Cluster]) -> list[str]:
    """A note on clusters of different nodes; none where all nodes are alike."""
    cluster = next((cluster for cluster in clusters if cluster.groups), None)
    if cluster is None:
        return []
    counts = ", ".join(f"{count} {gpu}" for gpu, count in cluster.gpus_by_kind().items())
    return [
        f"The cluster has {len(cluster.views())} kinds of nodes ({counts}): ranks are priced on their nodes and wait "
        "for the slowest, and memory is that of the fullest GPU for its size."
    ]


def _changes(options: RunOptions, clusters: Sequence[Cluster]) -> list[str]:
    """The what-if changes, which hold for all plans, as sentences.

    Raises:
        InputError: one of them cannot be read, or names work that no plan has; or there are no prices where named.
    """
    from presim.cost.estimators import check as check_prices
    from presim.verbs.target import what_if_changes

    changes = dataclasses.replace(what_if_changes(options), is_for_many_jobs=True)
    changes.check_operators(())
    check_prices(options.price_folders)
    sentences = changes.sentences(clusters[0], 0, 0)
    if "time_bound" in invalid_rules(changes):
        sentences.append(
            "No plan is left out by a lower bound of its step time, because these bounds do not know the changes."
        )
    return sentences


def _free(graph: Any, fixed: Mapping[str, object], clusters: Sequence[Cluster]) -> dict[str, tuple[Value, ...]]:
    """Values for the knobs that the user neither fixed nor varied."""
    batch = fixed.get("global_batch")
    extent = Extent(
        world=max(cluster.world_size for cluster in clusters),
        domain=max(cluster.gpus_per_node for cluster in clusters),
        layers=max((segment.count for segment in graph.segments if segment.name), default=1),
        experts=expert_count(graph),
        global_batch=batch if isinstance(batch, int) else None,
    )
    return {name: tuple(values) for name, values in open_knobs(fixed, extent).items()}
