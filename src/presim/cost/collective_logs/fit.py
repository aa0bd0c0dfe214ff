"""Fit the constants of the white-box model to measured collectives from NCCL logs or public tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import msgspec

from presim.cost.collectives.algorithms import Call
from presim.cost.collectives.constants import FabricConstants, LinkConstants
from presim.cost.collectives.environment import Tuning, tuning_of
from presim.cost.collectives.hierarchical import call_of, fastest
from presim.cost.collectives.measurements import FEWEST, Point
from presim.cost.collectives.placement import layout_of, links_of
from presim.errors import InputError
from presim.trace.schema import Group

_STEPS = (0.5, 0.25, 0.1, 0.04, 0.015)  # relative changes to try, from coarse to fine
_ROUNDS = 12  # maximum at each step size
_SHARES = ("efficiency", "direct_efficiency", "small_group", "small_hop", "multicast_efficiency")
_MOST = {"multicast_efficiency": 1.35, "small_group": 0.9}  # shares are at most 1, so that no price beats the links

LINK = ("base_us", "step_us", "efficiency", "small_group", "direct_us", "direct_step_us", "direct_efficiency")
SWITCH = ("multicast_us", "multicast_efficiency")
FABRIC = ("entry_us", "hops", "small_hop", "efficiency", "direct_efficiency")


@dataclasses.dataclass(frozen=True)
class Fitted:
    """Fitted constants and their error on held-out points: every second one of each log."""

    link: LinkConstants
    fabric: FabricConstants
    points: int
    held_out_median: float
    held_out_p80: float


@dataclasses.dataclass(frozen=True)
class _Prepared:
    call: Call
    tuning: Tuning
    seconds: float
    weight: float


def fit(points: Sequence[Point], link: Sequence[str] = (), fabric: Sequence[str] = ()) -> Fitted:
    """Change the named constants to minimise the sum of |log ratio| between model and points.

    Constants that no point depends on stay as they are. The points are of one GPU generation and fabric.

    Raises:
        InputError: too few points for a fit.
    """
    if len(points) < FEWEST:
        raise InputError(f"{len(points)} measurements are too few for a fit; give logs with at least {FEWEST} sizes")
    ordered = sorted(points, key=lambda point: (point.log, point.ranks, point.collective.kind, point.collective.bytes))
    training, validation = _prepare(ordered[::2]), _prepare(ordered[1::2])
    constants = (training[0].call.link, training[0].call.fabric)
    best = loss(training, *constants)
    for step in _STEPS:
        for _ in range(_ROUNDS):
            before = best
            for part, names in ((0, link), (1, fabric)):
                for name in names:
                    constants, best = _improve(training, constants, part, name, step, best)
            if before - best < 1e-5:
                break
    errors = sorted(abs(math.expm1(_log_ratio(point, *constants))) for point in validation)
    return Fitted(*constants, len(validation), errors[len(errors) // 2], errors[int(0.8 * (len(errors) - 1))])


def loss(points: Sequence[_Prepared], link: LinkConstants, fabric: FabricConstants) -> float:
    """Weighted mean of |log (model / measured)|."""
    total = sum(point.weight for point in points)
    return sum(point.weight * abs(_log_ratio(point, link, fabric)) for point in points) / total


_Constants = tuple[LinkConstants, FabricConstants]


def _improve(
    points: Sequence[_Prepared], constants: _Constants, part: int, name: str, step: float, best: float
) -> tuple[_Constants, float]:
    """Try a step up and a step down for each figure of one constant."""
    value = getattr(constants[part], name)
    figure_indices = range(len(value)) if isinstance(value, tuple) else (None,)
    for figure_index in figure_indices:
        for factor in (1 + step, 1 / (1 + step)):
            changed = _scaled(name, getattr(constants[part], name), figure_index, factor)
            replaced = msgspec.structs.replace(constants[part], **{name: changed})
            tried: _Constants = (replaced, constants[1]) if part == 0 else (constants[0], replaced)  # type: ignore[assignment]
            error = loss(points, *tried)
            if error < best - 1e-7:
                constants, best = tried, error
    return constants, best


def _scaled(name: str, value: float | tuple[float, ...], figure_index: int | None, factor: float) -> object:
    """One figure of a constant times a factor: four digits, within its limits."""
    if not isinstance(value, tuple):
        limit = _MOST.get(name, 1.0) if name in _SHARES else math.inf
        return float(f"{min(value * factor, limit):.4g}")
    return tuple(_scaled(name, old, None, factor) if index == figure_index else old for index, old in enumerate(value))


def _log_ratio(point: _Prepared, link: LinkConstants, fabric: FabricConstants) -> float:
    run = fastest(dataclasses.replace(point.call, link=link, fabric=fabric), point.tuning)
    return math.log(run.seconds / point.seconds)


def _prepare(points: Sequence[Point]) -> list[_Prepared]:
    """Layouts, links and weights, which do not depend on the constants."""
    logs = [point.log for point in points]
    counts = {log: logs.count(log) for log in set(logs)}
    prepared = []
    for point in points:
        group = Group("all", point.ranks, len(point.ranks))
        tuning = tuning_of(point.cluster.nccl)
        layout = layout_of(point.collective, group, point.cluster)
        links = links_of(point.cluster, layout, tuning)
        call = call_of(point.collective, layout, links, tuning, point.cluster)
        prepared.append(_Prepared(call, tuning, point.seconds, 1 / counts[point.log]))
    return prepared
