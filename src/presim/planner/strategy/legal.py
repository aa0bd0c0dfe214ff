"""The legal plans of a space: knobs get values one after the other, and a value that breaks a condition ends there.

Each condition of `presim.composition.plan_check` says which fields it reads. It is tried as soon as these have values,
once for each combination of them, so illegal points are never listed. Plans that differ only in a knob without effect
are one plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from presim.composition.plan_check import CHECKS, PlanCheck, check
from presim.errors import InputError
from presim.hardware.cluster import Cluster
from presim.planner.knobs import CLUSTER
from presim.planner.space import Space
from presim.planner.trials.point_evaluator import plan
from presim.planner.trials.trial import Point, Value, format_value

_SHARDED = ("fsdp2", "hsdp")
ClusterOf = Callable[[Mapping[str, Value]], Cluster]


def illegal_reason(point: Mapping[str, Value], cluster: Cluster, blocks: int = 0) -> str:
    """Why a plan is illegal, with the failing equation; empty if legal. ``blocks``: repeated blocks of the model."""
    try:
        check(plan(point), cluster.world_size, blocks)
    except InputError as error:
        return str(error)
    return ""


def legal_points(space: Space, cluster_of: ClusterOf, blocks: int = 0) -> Iterator[Point]:
    """The legal points of a space, each with all of its knobs, the cluster's first; equivalent plans are one."""
    names = sorted(space.varied, key=lambda name: name not in CLUSTER)
    tried_after = _checks_by_knob(names)
    verdicts: dict[tuple[object, ...], bool] = {}

    def is_legal(point: Point, conditions: Sequence[PlanCheck]) -> bool:
        cluster = cluster_of(point) if conditions else None
        for number, condition in enumerate(conditions):
            assert cluster is not None
            values = tuple(point.get(field) for field in condition.fields)
            name = (condition.fields, number, cluster.world_size, tuple(map(type, values)), values)
            if name not in verdicts:
                verdicts[name] = not _is_broken(condition, point, cluster.world_size, blocks)
            if not verdicts[name]:
                return False
        return True

    def extended(point: Point, index: int) -> Iterator[Point]:
        if not is_legal(point, tried_after[index]):
            return
        if index == len(names):
            if equivalent(point, space.varied, cluster_of(point)) == point:
                yield {**space.fixed, **{name: point[name] for name in space.varied}}
            return
        for value in space.varied[names[index]]:
            yield from extended({**point, names[index]: value}, index + 1)

    yield from extended(dict(space.fixed), 0)


def _checks_by_knob(names: Sequence[str]) -> list[list[PlanCheck]]:
    """Conditions to try when so many knobs have values; none before the cluster is fixed."""
    num_cluster_knobs = sum(name in CLUSTER for name in names)
    by_count: list[list[PlanCheck]] = [[] for _ in range(len(names) + 1)]
    for condition in CHECKS:
        needed = max((index + 1 for index, name in enumerate(names) if name in condition.fields), default=0)
        by_count[max(needed, num_cluster_knobs)].append(condition)
    return by_count


def _is_broken(condition: PlanCheck, point: Point, world_size: int, blocks: int) -> bool:
    """Whether a condition is broken, whatever values other fields get."""
    read = {"sequence": 1} | {name: point[name] for name in condition.fields if name in point}
    try:
        condition.raise_if_broken(plan(read), world_size, blocks)
    except InputError:
        return True
    return False


def equivalent(point: Point, values: Mapping[str, Sequence[Value]], cluster: Cluster) -> Point:
    """The first of the plans that differ from this one in knobs without effect only.

    In a pipeline FSDP2 never frees parameters after a forward pass. Sequence parallelism needs several tensor-parallel
    ranks, and a schedule several stages. HSDP over all ranks is FSDP2.
    """
    usual = dict(point)
    is_pipeline = point.get("pipeline", 1) != 1
    tries_all = "fsdp2" in values.get("data_style", ()) and 0 in values.get("shard", ())
    if tries_all and point.get("data_style") == "hsdp" and _shards_over_all(point, cluster):
        usual |= {"data_style": "fsdp2", "shard": 0}
    if is_pipeline or point.get("data_style", "fsdp2") not in _SHARDED:
        _set_if_tried(usual, "reshard", True, values)
    if point.get("tensor", 1) == 1:
        _set_if_tried(usual, "sequence_parallel", False, values)
    if not is_pipeline and "schedule" in point and values.get("schedule"):
        usual["schedule"] = values["schedule"][0]
    return usual


def _set_if_tried(point: Point, knob: str, value: Value, values: Mapping[str, Sequence[Value]]) -> None:
    if knob in point and value in values.get(knob, ()):
        point[knob] = value


def _shards_over_all(point: Point, cluster: Cluster) -> bool:
    return point.get("shard") == plan(point).sharing(cluster.world_size)


def illegal_values(space: Space, cluster_of: ClusterOf, blocks: int, legal: Sequence[Point]) -> list[tuple[Point, str]]:
    """For each value of a knob that no legal plan has: a point with it, and why it is illegal."""
    used = {(name, format_value(point[name])) for point in legal for name in space.varied}
    base = legal[0] if legal else next(iter(space))
    by_reason = {} if legal else {illegal_reason(base, cluster_of(base), blocks): base}
    for name, values in space.varied.items():
        for value in values:
            point = {**base, name: value}
            if (name, format_value(value)) not in used:
                by_reason.setdefault(illegal_reason(point, cluster_of(point), blocks), point)
    return [(point, words) for words, point in by_reason.items() if words]
