"""Fit a cluster file to nccl-tests logs: constants of the models, and the measurements themselves.

Profiles of a job can later update the statistical model of such a file.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from presim.cost.collective_logs import profiler_traces, public_tables
from presim.cost.collective_logs.cluster_text import constants_of, file_name, statistical_tables, text
from presim.cost.collective_logs.fit_collectives import FABRIC, LINK, SWITCH, Fitted, fit
from presim.cost.collective_logs.log_checks import left_out, points_of, possible_rows
from presim.cost.collective_logs.nccl_tests import Log
from presim.cost.collectives.measurements import FEWEST, CollectiveMeasurement
from presim.cost.collectives.statistical import (
    Parameters,
    Statistical,
    fit_statistical,
    parameters_of,
    updated_weights,
    with_stragglers,
)
from presim.errors import InputError
from presim.hardware import Cluster, catalogue, choose_cluster
from presim.system.files import check_apart, read_text, write_file
from presim.trace.schema import Group
from presim.trace.signatures import Collective


@dataclasses.dataclass(frozen=True)
class ClusterFit:
    """The result of a fit to logs."""

    text: str  # the cluster file, TOML
    link: Fitted | None  # None: too few points within one node
    fabric: Fitted | None  # None: too few points across nodes
    logs: tuple[Log, ...]


def fit_logs(logs: Sequence[Log], gpu: str = "", fabric: str = "", node: str = "") -> ClusterFit:
    """Fit the constants within a node to single-node logs, and those between nodes to the other logs.

    Raises:
        InputError: the logs are of different GPUs, of unevenly filled nodes, or too few.
    """
    cluster = _cluster(logs, gpu, fabric, node)
    logs = possible_rows(logs, cluster)
    points = [point for log in logs for point in points_of(log, cluster)]
    points_within_nodes = [point for point in points if max(point.ranks) < cluster.gpus_per_node]
    points_between_nodes = [point for point in points if max(point.ranks) >= cluster.gpus_per_node]
    if max(len(points_within_nodes), len(points_between_nodes)) < FEWEST:
        raise InputError(
            f"{len(points_within_nodes)} measurements within a node and {len(points_between_nodes)} between nodes "
            f"are too few for a fit; give logs with at least {FEWEST} sizes{left_out(logs)}"
        )
    link = (
        fit(points_within_nodes, link=(*LINK, *SWITCH) if cluster.node.reduces_in_network else LINK)
        if len(points_within_nodes) >= FEWEST
        else None
    )
    fitted = _with_link_constants(cluster, link)
    between = (
        fit([dataclasses.replace(point, cluster=fitted) for point in points_between_nodes], fabric=FABRIC)
        if len(points_between_nodes) >= FEWEST
        else None
    )
    parameters = fit_statistical(points)
    parts = _parts(cluster, gpu, node, fabric)
    return ClusterFit(text(cluster, parts, logs, link, between, parameters), link, between, tuple(logs))


def write_cluster(paths: Sequence[Path], out: Path, gpu: str = "", fabric: str = "", node: str = "") -> ClusterFit:
    """Fit to these logs and write the file atomically."""
    check_apart(out, paths)
    fitted = fit_logs([log for path in paths for log in public_tables.logs(path)], gpu, fabric, node)
    write_file(out, fitted.text.encode())
    return fitted


@dataclasses.dataclass(frozen=True)
class ClusterUpdate:
    """What an update learned; errors are medians of the shortest times."""

    collectives: int
    ranks: int
    rejected: dict[str, int]  # reason -> collectives
    error_before: float
    error_after: float
    late_ratio: float  # median of the third quartile with late ranks over the shortest time


def describe_update(update: ClusterUpdate) -> list[str]:
    """What an update learned, as lines for a terminal."""
    is_better = update.error_after <= update.error_before
    worse = "" if is_better else ": no improvement, so keep the old file or fit to logs with these sizes"
    errors = f"{update.error_before:.1%} before, {update.error_after:.1%} now"
    return [
        f"{update.collectives} collectives on {update.ranks} ranks",
        *(f"left out {count}: {reason}" for reason, count in update.rejected.items()),
        f"median error of the shortest times: {errors}{worse}",
        f"median third quartile with late ranks: {update.late_ratio:.2f} times the shortest time",
    ]


def update_cluster(paths: Sequence[Path], file: Path, out: Path) -> ClusterUpdate:
    """Update the statistical model of a cluster file from a job's profiles.

    Raises:
        InputError: the file has no such model, the traces have no collective of the cluster, or the file cannot be
        written.
    """
    check_apart(out, paths)
    cluster = choose_cluster(cluster=file)
    parameters = parameters_of(cluster)
    collectives, rejected = profiler_traces.read(paths)
    cluster = _large_enough(cluster, max((max(call.ranks) for call in collectives), default=0))
    fits = [call for call in collectives if max(call.ranks) < cluster.world_size and call.kind in parameters.minimum]
    if not fits:
        raise InputError(_no_fit(collectives, cluster.world_size, cluster.nodes, sorted(parameters.minimum), file))
    points = [
        CollectiveMeasurement(
            Collective(call.kind, call.bytes, call.dtype, 0), call.ranks, cluster, call.own_us * 1e-6, "job"
        )
        for call in fits
    ]
    # The weights are of the time without stragglers; the shortest time of all ranks has none.
    updated_parameters = updated_weights(
        msgspec.structs.replace(parameters, straggler=(1.0, 0.0), straggler_of={}), points
    )
    updated_parameters = with_stragglers(
        updated_parameters, [(call.kind, len(call.ranks), call.bytes, call.late) for call in fits]
    )
    sections = _without_statistical(read_text(file, "name a cluster file"))
    write_file(out, ("\n".join([sections, *statistical_tables(updated_parameters)]) + "\n").encode())
    ratio = sorted(call.late for call in fits)[len(fits) // 2]
    before, now = _error(parameters, points), _error(updated_parameters, points)
    return ClusterUpdate(len(fits), len(paths), dict(rejected), before, now, ratio)


def _large_enough(cluster: Cluster, highest_rank: int) -> Cluster:
    """The cluster with as many nodes as a job on it had; unchanged if it has one, whose network was never measured."""
    if cluster.nodes == 1 or highest_rank < cluster.world_size or cluster.groups:
        return cluster
    return msgspec.structs.replace(cluster, nodes=highest_rank // cluster.gpus_per_node + 1)


def _no_fit(
    collectives: Sequence[profiler_traces.ProfiledCollective], gpus: int, nodes: int, kinds: Sequence[str], file: Path
) -> str:
    """Why no collective of a job can update the file, and what to do."""
    highest = max((max(call.ranks) for call in collectives), default=-1)
    if highest >= gpus:
        return (
            f"the traces are of a job with rank {highest} and {file} describes {gpus} GPUs (nodes = {nodes}): raise "
            "nodes in the file to the job's, or give traces of a job that fits it"
        )
    profiled_kinds = (
        ", ".join(sorted({call.kind for call in collectives})) or "no collective was profiled on two of the ranks"
    )
    return (
        f"{file} models {', '.join(kinds)}, but the traces contain {profiled_kinds}: fit the file to logs of "
        "these kinds first (presim fit --nccl-tests), or profile steps that use them"
    )


def _error(parameters: Parameters, points: Sequence[CollectiveMeasurement]) -> float:
    model = Statistical(msgspec.structs.replace(parameters, straggler=(1.0, 0.0), straggler_of={}))
    errors = []
    for point in points:
        price = model.alone(point.collective, Group("job", point.ranks, len(point.ranks)), point.cluster)
        errors.append(abs((price.duration_ns if price else 0) / (point.seconds * 1e9) - 1))
    return sorted(errors)[len(errors) // 2]


def _without_statistical(text: str) -> str:
    """A cluster file without the tables of its statistical model."""
    parts = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    return "".join(part for part in parts if not part.startswith("[collectives.statistical")).rstrip("\n")


def _describe_log(log: Log, name: str) -> str:
    nodes = f"{log.nodes} node{'s' if log.nodes > 1 else ''}"
    rejected_lines = "".join(f"; {count} lines left out: {why}" for why, count in log.rejected.items())
    launches = (
        f"; one thread launched for {log.thread_gpus} GPUs, which distorts small sizes: measure with one process per "
        "GPU (mpirun … -g 1)"
    )
    launch_note = launches if log.thread_gpus > 1 and log.rows else ""
    return f"{name}: {log.kind} of {log.ranks} ranks on {nodes}, {len(log.rows)} sizes{rejected_lines}{launch_note}"


def describe_fit(fitted: ClusterFit) -> list[str]:
    """What was fitted and its error, as lines for a terminal."""
    lines = [_describe_log(log, file_name(log, fitted.logs)) for log in fitted.logs]
    for name, part in (("within a node", fitted.link), ("between nodes", fitted.fabric)):
        if part is None:
            lines.append(f"{name}: not fitted, the catalogue's constants apply")
        else:
            figures = f"median error {part.held_out_median:.1%}, 80 % within {part.held_out_p80:.1%}"
            lines.append(f"{name}: {figures}, on {part.points} held-out sizes")
    return lines


def fit_figures(fitted: ClusterFit) -> dict[str, Any]:
    """The errors of a fit on held-out points, and what each log holds."""
    parts = {"within_node": fitted.link, "between_nodes": fitted.fabric}
    logs = [
        {"path": str(log.path), "kind": log.kind, "ranks": log.ranks, "nodes": log.nodes, "sizes": len(log.rows)}
        for log in fitted.logs
    ]
    return {**{name: dataclasses.asdict(part) if part else None for name, part in parts.items()}, "logs": logs}


def _cluster(logs: Sequence[Log], gpu: str, fabric: str, node: str) -> Cluster:
    names = sorted({log.gpu for log in logs})
    if len(names) > 1:
        raise InputError(f"the logs are of different GPUs ({', '.join(names)}); fit each kind separately")
    _check_named_gpu(logs, gpu)
    cluster = choose_cluster(
        gpu=gpu or names[0], node=node or None, nodes=max(log.nodes for log in logs), fabric=fabric or None
    )
    for log in logs:
        if log.ranks % log.nodes or log.ranks // log.nodes > cluster.gpus_per_node:
            raise InputError(
                f"{log.path}: {log.ranks} ranks on {log.nodes} nodes do not fill nodes of {cluster.gpus_per_node} "
                "evenly; give logs with the same number of ranks on every node"
            )
    return cluster


def _check_named_gpu(logs: Sequence[Log], gpu: str) -> None:
    """Refuse a GPU of the catalogue other than the one that the logs name; a user's own description may be of it."""
    if not gpu or gpu.endswith(".toml"):
        return
    for log in logs:
        try:
            logged_id = catalogue.gpu(log.gpu).id
        except InputError:  # an unknown name, for which --gpu is there
            continue
        if log.gpu and logged_id != catalogue.gpu(gpu).id:
            raise InputError(
                f"{log.path} names {log.gpu} ({logged_id}), and --gpu is {gpu}; leave --gpu out, or give logs of {gpu}"
            )


def _parts(cluster: Cluster, gpu: str, node: str, fabric: str) -> dict[str, str]:
    """The cluster's parts as the file names them: by id, or by path for the user's own descriptions."""
    names = {"gpu": (gpu, cluster.gpu.id), "node": (node, cluster.node.id), "fabric": (fabric, cluster.fabric.id)}
    return {key: str(Path(name).resolve()) if name.endswith(".toml") else part for key, (name, part) in names.items()}


def _with_link_constants(cluster: Cluster, link: Fitted | None) -> Cluster:
    if link is None:
        return cluster
    return msgspec.structs.replace(cluster, collectives={"link": constants_of(link.link)})
