"""Collectives measured on the cluster: exact sizes and interpolation between them, no extrapolation."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from presim.cost.collectives.group_placement import check_kind, layout_of
from presim.cost.collectives.network_model import Uncongested
from presim.cost.price import Origin, Price
from presim.errors import InputError
from presim.hardware import Cluster
from presim.system.files import FormatError, convert
from presim.system.files.field_bounds import Bytes, PositiveCount, PositiveMicroseconds
from presim.trace.collective import COLLECTIVE_KINDS, Collective
from presim.trace.schema import Group

# Uncertainty. Two runs of nccl-tests on one cluster differ by a few percent. Between sizes the protocol may change.
_EXACT, _INTERPOLATED = 0.05, 0.12
_GAP = 8.0  # no interpolation between sizes further apart than this factor


class CollectiveRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measurement; ``bytes`` as in `Collective`."""

    kind: str
    ranks: PositiveCount
    nodes: PositiveCount
    bytes: Bytes
    us: PositiveMicroseconds


class Measured(Uncongested):
    """A `NetworkModel` of a table: covers measured kinds and placements, within the measured sizes."""

    name = "measured/collectives"

    def __init__(self, rows: Iterable[CollectiveRow]) -> None:
        self._series: dict[tuple[str, int, int], list[tuple[int, float]]] = {}
        for row in sorted(rows, key=lambda row: (row.kind, row.ranks, row.nodes, row.bytes)):
            self._series.setdefault((row.kind, row.ranks, row.nodes), []).append((row.bytes, row.us))
        for series in self._series.values():
            series[:] = _monotonic(series)

    def alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        """The measured time, or a log-log interpolation between neighbouring sizes; None: not covered."""
        if collective.routed is not None:
            return None
        check_kind(collective)
        collective = collective.even
        layout = layout_of(collective, group, cluster)
        series = self._series.get((collective.kind, layout.ranks, layout.nodes), [])
        evenly = layout.per_node * layout.nodes == layout.ranks
        if not series or not evenly or not layout.has_known_ranks or collective.fused > 1:
            return None
        lookup = _interpolated_us(series, max(collective.bytes, 0))
        if lookup is None:
            return None
        microseconds, exact = lookup
        origin, width = (Origin.MEASURED, _EXACT) if exact else (Origin.INTERPOLATED, _INTERPOLATED)
        bound = "latency" if microseconds < 2 * series[0][1] else "network"
        return Price(max(1, round(microseconds * 1e3)), origin, width, self.name, bound)


def rows_of(collectives: Mapping[str, Any]) -> list[CollectiveRow]:
    """The rows of ``[[collectives.measured]]`` in a cluster file.

    Raises:
        InputError: a row is invalid.
    """
    try:
        rows = convert(collectives.get("measured", []), list[CollectiveRow])
    except FormatError as error:
        raise InputError(f"the cluster's [[collectives.measured]] is invalid: {error}; correct the row") from error
    for row in rows:
        if row.kind not in COLLECTIVE_KINDS or not row.us > 0 or row.bytes < 0 or not 1 <= row.nodes <= row.ranks:
            raise InputError(
                f"the cluster's [[collectives.measured]] has an impossible row: {row}; correct or remove it"
            )
    return rows


def _monotonic(series: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The median time of each size, but never shorter than that of a smaller size: noise must not invert sizes."""
    by_size: dict[int, list[float]] = {}
    for size, time in series:
        by_size.setdefault(size, []).append(time)
    rising: list[tuple[int, float]] = []
    for size, times in sorted(by_size.items()):
        median = sorted(times)[len(times) // 2]
        rising.append((size, max(median, rising[-1][1]) if rising else median))
    return rising


def _interpolated_us(series: list[tuple[int, float]], size: int) -> tuple[float, bool] | None:
    """Time at a size, and whether that size was measured; None: outside the measured sizes or in a wide gap."""
    index = bisect.bisect_left(series, (size, 0.0))
    if index < len(series) and series[index][0] == size:
        return series[index][1], True
    if not 0 < index < len(series):
        return None
    (low, fast), (high, slow) = series[index - 1], series[index]
    if low <= 0 or high > low * _GAP:
        return None
    share = math.log(size / low) / math.log(high / low)
    return math.exp(math.log(fast) + share * math.log(slow / fast)), False
