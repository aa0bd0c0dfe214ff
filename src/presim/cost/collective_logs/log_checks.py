"""Select the rows of nccl-tests logs for a fit: no duplicates, and none faster than the links allow."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from presim.cost.collective_logs.bandwidth_bounds import impossible
from presim.cost.collective_logs.nccl_tests import Log
from presim.cost.collectives.measurements import CollectiveMeasurement
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.signatures import Collective


def points_of(log: Log, cluster: Cluster) -> list[CollectiveMeasurement]:
    """Rows of a log on the ranks of the cluster, filled node by node."""
    per_node = log.ranks // log.nodes
    ranks = tuple(node * cluster.gpus_per_node + gpu for node in range(log.nodes) for gpu in range(per_node))
    return [
        CollectiveMeasurement(
            Collective(log.kind, size, "float32", 0), ranks, cluster, us * 1e-6, f"{log.kind} {log.ranks} {log.nodes}"
        )
        for size, us in log.rows
    ]


def possible_rows(logs: Sequence[Log], cluster: Cluster) -> list[Log]:
    """The logs without impossible rows, which they count as rejected.

    Raises:
        InputError: one log was given twice, so that held-out points would also be fitted.
    """
    seen: dict[object, Path] = {}
    for log in logs:
        figures = (log.kind, log.ranks, log.nodes, log.rows)
        if log.rows and figures in seen:
            raise InputError(f"{log.path} and {seen[figures]} have the same figures; give each log only once")
        seen[figures] = log.path
    return [_possible(log, cluster) for log in logs]


def left_out(logs: Sequence[Log]) -> str:
    """The number of rejected lines in all logs and the reason, as the end of a sentence."""
    total = sum((collections.Counter(log.rejected) for log in logs), collections.Counter[str]())
    return "".join(f"; {count} lines were left out: {why}" for why, count in sorted(total.items()))


def _possible(log: Log, cluster: Cluster) -> Log:
    rows = tuple(
        row
        for point, row in zip(points_of(log, cluster), log.rows)
        if not impossible(point.collective, point.ranks, cluster, point.seconds)
    )
    if len(rows) == len(log.rows):
        return log
    reason = f"faster than {cluster.node.id}" + (f" and {cluster.fabric.id} allow" if log.nodes > 1 else " allows")
    return dataclasses.replace(log, rows=rows, rejected={**log.rejected, reason: len(log.rows) - len(rows)})
