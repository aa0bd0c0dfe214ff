"""Fit the constants of the white-box model to measured collectives from NCCL logs or public tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import msgspec

from presim.cost.collectives.algorithms import CollectiveCall
from presim.cost.collectives.collective_constants import FabricConstants, LinkConstants
from presim.cost.collectives.group_placement import layout_of, links_of
from presim.cost.collectives.hierarchical import call_of, library_choice, run_of
from presim.cost.collectives.measurements import FEWEST, CollectiveMeasurement
from presim.cost.collectives.nccl_choice import AlgorithmChoice
from presim.cost.collectives.nccl_environment import Tuning, tuning_of
from presim.errors import InputError
from presim.trace.schema import Group

_ASCENDING = ("base_us", "step_us", "entry_us")  # from LL to Simple, which synchronises more: holds beyond the logs
_STEPS = (0.5, 0.25, 0.1, 0.04, 0.015)  # relative changes to try, from coarse to fine
_ROUNDS = 12  # maximum at each step size
_SHARES = ("efficiency", "switch_efficiency", "switch_share", "direct_efficiency", "small_group", "small_hop")
_MOST = {"small_group": 0.9}  # shares are at most 1, so that no price beats the links

LINK = (
    "base_us",
    "step_us",
    "efficiency",
    "channel_GBps",
    "small_group",
    "direct_us",
    "direct_step_us",
    "direct_efficiency",
)
SWITCH = ("multicast_us", "multicast_fill_us", "multicast_fill_MiB", "multicast_channel_GBps")
FABRIC = (
    "entry_us",
    "switch_entry_us",
    "hops",
    "small_hop",
    "efficiency",
    "switch_efficiency",
    "switch_share",
    "direct_efficiency",
)


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
    call: CollectiveCall
    tuning: Tuning
    choice: AlgorithmChoice | None  # what NCCL chooses, which does not depend on the constants
    fitted: tuple[bool, bool]  # whether the constants of links and of the fabric are fitted
    seconds: float
    weight: float


def fit(points: Sequence[CollectiveMeasurement], link: Sequence[str] = (), fabric: Sequence[str] = ()) -> Fitted:
    """Change the named constants to minimise the sum of |log ratio| between model and points.

    Constants that no point depends on stay as they are. The points are of one GPU generation if ``link`` is fitted;
    else each keeps those of its own. The same holds for kinds of fabrics.

    Raises:
        InputError: too few points for a fit.
    """
    if len(points) < FEWEST:
        raise InputError(f"{len(points)} measurements are too few for a fit; give logs with at least {FEWEST} sizes")
    ordered = sorted(points, key=lambda point: (point.log, point.ranks, point.collective.kind, point.collective.bytes))
    parts = bool(link), bool(fabric)
    training, validation = _prepare(ordered[::2], parts), _prepare(ordered[1::2], parts)
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
            if name in _ASCENDING and isinstance(changed, tuple) and list(changed) != sorted(changed):
                continue
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
    fits_link, fits_fabric = point.fitted
    call = dataclasses.replace(
        point.call, link=link if fits_link else point.call.link, fabric=fabric if fits_fabric else point.call.fabric
    )
    run = run_of(call, point.tuning, point.choice)
    return math.log(run.seconds / point.seconds)


def _prepare(points: Sequence[CollectiveMeasurement], fitted: tuple[bool, bool]) -> list[_Prepared]:
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
        choice = library_choice(call, tuning)
        prepared.append(_Prepared(call, tuning, choice, fitted, point.seconds, 1 / counts[point.log]))
    return prepared
