"""TorchSim's statistical model: bandwidth as a log-sigmoid of the size, a linear correction, a straggler ratio.

Source: "TorchSim", appendix F: equations 1 and 2 (bandwidth), table 10 (minimum time by links and hops), 11 and 12
(linear model of the minimum), 13 (straggler ratio), 14 (online update). There are two differences:

- The linear model is fitted to relative errors. Times span five orders of magnitude; absolute errors would weight only
  the largest.
- Only terms that stay positive for all sizes are used, so that more bytes never take less time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from presim.cost.collectives.group_placement import GroupPlacement, check_kind, layout_of
from presim.cost.collectives.measurements import FEWEST, CollectiveMeasurement
from presim.cost.collectives.network_model import Uncongested
from presim.cost.estimator_conformance import wires_ns
from presim.cost.price import Origin, Price
from presim.errors import InputError
from presim.hardware import Cluster
from presim.system.files import FormatError, convert
from presim.system.files.field_bounds import Coefficient, GBps, Microseconds, Ratio
from presim.trace.collective import Collective
from presim.trace.schema import Group

_LEAST_GBPS = 1e-9  # a byte a second: a curve without a floor falls to nothing at small sizes
_ROUNDS = (0.6, 0.3, 0.12, 0.05, 0.02, 0.008)  # relative steps of the search for curves, from coarse to fine


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Latency of a step, and bandwidth in GB/s at size S: floor + height / (1 + exp(-steepness (ln S - middle)))."""

    floor: GBps
    height: GBps
    steepness: Coefficient
    middle: Coefficient
    latency_us: Microseconds

    def GBps(self, size: float) -> float:
        """Bandwidth at a size in bytes."""
        exponent = -self.steepness * (math.log(max(size, 1.0)) - self.middle)
        return max(self.floor + self.height / (1 + math.exp(min(exponent, 700.0))), _LEAST_GBPS)


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fitted parameters."""

    within: Curve  # links within a node
    between: Curve  # ports between nodes
    minimum: dict[str, tuple[Ratio, Ratio, Ratio]]  # by kind: weights of (time, latency, ranks)
    straggler: tuple[Ratio, Ratio] = (1.0, 0.0)  # ratio = first + second * ranks * ln(bytes)
    uncertainty: Ratio = 0.3
    # the same by kind ("all_reduce"), and by kind and number of ranks ("all_reduce 8"), where enough were observed
    straggler_of: dict[str, tuple[Ratio, Ratio]] = {}


def parameters_of(cluster: Cluster) -> Parameters:
    """The parameters in the cluster file.

    Raises:
        InputError: the file lacks them, or they are invalid.
    """
    try:
        return convert(cluster.collectives.get("statistical"), Parameters)
    except FormatError as error:
        raise InputError(
            f"the cluster's [collectives.statistical] is missing or invalid: {error}; create it again with "
            "`presim fit --nccl-tests`"
        ) from error


class Statistical(Uncongested):
    """The statistical `NetworkModel`."""

    name = "learned/statistical"

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    def alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        """The 75th percentile of the time over ranks; None for kinds that were not fitted."""
        if collective.routed is not None:
            return None
        check_kind(collective)
        collective = collective.even
        layout = layout_of(collective, group, cluster)
        weights = self.parameters.minimum.get(collective.kind)
        if weights is None or layout.ranks < 2 or collective.fused > 1:
            return None
        size = max(collective.bytes, 1)
        time, latency = minimum_us(self.parameters, collective.kind, size, layout)
        microseconds = _dot(weights, (time, latency, float(layout.ranks))) * _ratio(
            self.parameters, collective.kind, layout.ranks, size
        )
        microseconds = max(microseconds, wires_ns(collective, group, cluster) * 1e-3)
        width = min(self.parameters.uncertainty + (0.0 if layout.has_known_ranks else 0.25), 0.9)
        bound = "latency" if latency > time / 2 else "network"
        return Price(max(1, round(microseconds * 1e3)), Origin.LEARNED, width, self.name, bound)


def minimum_us(parameters: Parameters, kind: str, size: float, layout: GroupPlacement) -> tuple[float, float]:
    """Table 10: (time, latency included in it) in us. ``size``: bytes, as in `Collective`."""
    within, between = parameters.within, parameters.between
    inside = layout.per_node - 1
    rounds = 2 if kind == "all_reduce" else 1
    share = (layout.ranks - 1) / layout.ranks
    hops = (math.ceil(math.log2(layout.nodes)) + 1) * 2 if kind == "all_reduce" else layout.nodes - 1
    latency = rounds * inside * within.latency_us
    latency += hops * between.latency_us if layout.nodes > 1 else 0.0
    time = within.latency_us + latency
    if inside:
        time += rounds * share * size / (within.GBps(size) * 1e3)
    if layout.nodes > 1:
        time += rounds * share * size / layout.per_node / (between.GBps(size) * 1e3)
    return time, latency


def fit_statistical(points: Sequence[CollectiveMeasurement]) -> Parameters:
    """Fit the curves to all kinds together, then the linear weights per kind, then the uncertainty to the residuals.

    Raises:
        InputError: there are too few points.
    """
    if len(points) < FEWEST:
        raise InputError(f"{len(points)} measurements are too few for a fit; add logs with at least {FEWEST} sizes")
    rows = [
        (point, layout_of(point.collective, Group("all", point.ranks, len(point.ranks)), point.cluster))
        for point in points
    ]
    ports = rows[0][0].cluster.network_bytes_per_s * 1e-9
    start = Parameters(
        within=Curve(1.0, rows[0][0].cluster.link_bytes_per_s * 1e-9, 0.8, math.log(8 << 20), 2.0),
        between=Curve(0.5, ports, 0.8, math.log(32 << 20), 8.0),
        minimum={},
    )
    curves = _search(start, rows)
    minimum = {}
    for kind in sorted({point.collective.kind for point in points}):
        minimum[kind] = _weights(curves, [row for row in rows if row[0].collective.kind == kind])
    fitted = msgspec.structs.replace(curves, minimum=minimum)
    errors = sorted(abs(_predicted(fitted, *row) / (row[0].seconds * 1e6) - 1) for row in rows)
    return msgspec.structs.replace(fitted, uncertainty=round(max(errors[int(0.8 * (len(errors) - 1))], 0.05), 3))


def with_stragglers(parameters: Parameters, observed: Sequence[tuple[str, int, int, float]]) -> Parameters:
    """Fit equation 13 to (kind, ranks, bytes, t75 / minimum) of collectives timed on every rank.

    Kinds, and groups of one size, that were observed often enough have a ratio of their own: an all-reduce of gradients
    waits for other ranks than an exchange within a node.
    """
    parts: dict[str, list[tuple[int, int, float]]] = {}
    for kind, ranks, size, ratio in observed:
        for name in (kind, f"{kind} {ranks}"):
            parts.setdefault(name, []).append((ranks, size, ratio))
    by_part = {name: _straggler_line(rows) for name, rows in sorted(parts.items()) if len(rows) >= FEWEST}
    overall = _straggler_line([row[1:] for row in observed])
    return msgspec.structs.replace(parameters, straggler=overall, straggler_of=by_part)


def _straggler_line(observed: Sequence[tuple[int, int, float]]) -> tuple[float, float]:
    """Intercept and slope; the intercept is at least 1 and the slope at least 0.

    Few sizes may otherwise give a lower or falling line.
    """
    features = [(1.0, ranks * math.log(max(size, 2))) for ranks, size, _ in observed]
    ratios = [ratio for _, _, ratio in observed]
    first, second = _least_squares(features, ratios, ridge=1e-9)
    if second < 0:
        first, second = max(sum(ratios) / len(ratios), 1.0), 0.0
    elif first < 1:
        above = _least_squares([row[1:] for row in features], [ratio - 1 for ratio in ratios], ridge=1e-9)
        first, second = 1.0, max(above[0], 0.0)
    return first, second


def updated_weights(parameters: Parameters, observed: Sequence[CollectiveMeasurement], rate: float = 0.2) -> Parameters:
    """Equation 14: weights moved towards observed collectives, one after the other, in relative steps."""
    minimum = dict(parameters.minimum)
    for point in observed:
        kind = point.collective.kind
        if kind not in minimum:
            continue
        layout = layout_of(point.collective, Group("all", point.ranks, len(point.ranks)), point.cluster)
        size = max(point.collective.bytes, 1)
        time, latency = minimum_us(parameters, kind, size, layout)
        features = (time, latency, float(layout.ranks))
        measured = point.seconds * 1e6 / _ratio(parameters, kind, layout.ranks, size)
        error = (_dot(minimum[kind], features) - measured) / sum(feature * feature for feature in features)
        moved_weights = [
            max(weight - rate * error * feature, 0.0) for weight, feature in zip(minimum[kind], features, strict=True)
        ]
        minimum[kind] = (moved_weights[0], moved_weights[1], moved_weights[2])
    return msgspec.structs.replace(parameters, minimum=minimum)


_Row = tuple[CollectiveMeasurement, GroupPlacement]


def _predicted(parameters: Parameters, point: CollectiveMeasurement, layout: GroupPlacement) -> float:
    size = max(point.collective.bytes, 1)
    time, latency = minimum_us(parameters, point.collective.kind, size, layout)
    weights = parameters.minimum.get(point.collective.kind, (1.0, 0.0, 0.0))
    return _dot(weights, (time, latency, float(layout.ranks)))


def _search(parameters: Parameters, rows: Sequence[_Row]) -> Parameters:
    """Coordinate search: step each figure of both curves up and down while the log error decreases."""

    def loss(tried: Parameters) -> float:
        return sum(abs(math.log(_predicted(tried, *row) / (row[0].seconds * 1e6))) for row in rows)

    best = loss(parameters)
    for step in _ROUNDS:
        for _ in range(20):
            before = best
            for part in ("within", "between"):
                for name in Curve.__struct_fields__:
                    for factor in (1 + step, 1 / (1 + step)):
                        curve = getattr(parameters, part)
                        value = getattr(curve, name) * factor
                        if name == "steepness":  # above 1, bandwidth would grow faster than the size
                            value = min(value, 1.0)
                        stepped_curve = msgspec.structs.replace(curve, **{name: value})
                        tried = msgspec.structs.replace(parameters, **{part: stepped_curve})
                        if (error := loss(tried)) < best - 1e-9:
                            parameters, best = tried, error
            if before - best < 1e-4 * before:
                break
    return parameters


def _weights(parameters: Parameters, rows: Sequence[_Row]) -> tuple[float, float, float]:
    """Equation 11 without terms that could become negative. If a weight does, only the analytic time is used."""
    features, targets = [], []
    for point, layout in rows:
        time, latency = minimum_us(parameters, point.collective.kind, max(point.collective.bytes, 1), layout)
        measured = point.seconds * 1e6
        features.append((time / measured, latency / measured, layout.ranks / measured))
        targets.append(1.0)
    weights = _least_squares(features, targets, ridge=1e-3)
    if min(weights) < 0:
        return (_least_squares([row[:1] for row in features], targets, ridge=1e-9)[0], 0.0, 0.0)
    return (weights[0], weights[1], weights[2])


def _least_squares(features: Sequence[Sequence[float]], targets: Sequence[float], ridge: float) -> list[float]:
    import numpy as np

    matrix, target = np.array(features), np.array(targets)
    normal = matrix.T @ matrix + ridge * np.eye(matrix.shape[1])
    solved: list[float] = np.linalg.solve(normal, matrix.T @ target).tolist()
    return solved


def _ratio(parameters: Parameters, kind: str, ranks: int, size: float) -> float:
    of_kind = parameters.straggler_of.get(kind, parameters.straggler)
    first, second = parameters.straggler_of.get(f"{kind} {ranks}", of_kind)
    return max(1.0, first + second * ranks * math.log(max(size, 2.0)))


def _dot(weights: Sequence[float], features: Sequence[float]) -> float:
    return sum(weight * feature for weight, feature in zip(weights, features, strict=True))
