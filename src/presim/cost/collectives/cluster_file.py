"""From logs of nccl-tests to a cluster's file: constants of the models, and the measurements themselves.

What a job's profiler saw later moves the statistical model of such a file.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from presim.cost.collectives import seen
from presim.cost.collectives.constants import FabricConstants, LinkConstants
from presim.cost.collectives.fit import FABRIC, FEWEST, LINK, SWITCH, Fitted, Point, fit
from presim.cost.collectives.measured import Row
from presim.cost.collectives.nccl_tests import Log, read
from presim.cost.collectives.statistical import (
    Curve,
    Parameters,
    Statistical,
    fit_statistical,
    parameters_of,
    updated,
    with_stragglers,
)
from presim.cost.collectives.usable import left_out, points_of, usable
from presim.errors import InputError
from presim.files import write_file
from presim.hardware import Cluster, choose_cluster
from presim.trace.schema import Group
from presim.trace.signatures import Collective


@dataclasses.dataclass(frozen=True)
class ClusterFit:
    """What was made of the logs."""

    text: str  # the cluster's file, TOML
    link: Fitted | None  # None: too few points of one node
    fabric: Fitted | None  # None: too few points of several nodes
    logs: tuple[Log, ...]


def fit_logs(logs: Sequence[Log], gpu: str = "", fabric: str = "") -> ClusterFit:
    """Fit the constants within a node to the logs of one node, those between nodes to the others.

    Raises:
        InputError: the logs are of different GPUs, of unevenly filled nodes, or too few.
    """
    cluster = _cluster(logs, gpu, fabric)
    logs = usable(logs, cluster)
    points = [point for log in logs for point in points_of(log, cluster)]
    near = [point for point in points if max(point.ranks) < cluster.gpus_per_node]
    far = [point for point in points if max(point.ranks) >= cluster.gpus_per_node]
    if max(len(near), len(far)) < FEWEST:
        raise InputError(
            f"{len(near)} measurements within a node and {len(far)} between nodes are too few to fit to: "
            f"give logs with {FEWEST} sizes at least{left_out(logs)}"
        )
    link = (
        fit(near, link=(*LINK, *SWITCH) if cluster.node.reduces_in_network else LINK) if len(near) >= FEWEST else None
    )
    fitted = _with(cluster, link)
    between = fit([dataclasses.replace(p, cluster=fitted) for p in far], fabric=FABRIC) if len(far) >= FEWEST else None
    parameters = fit_statistical(points)
    return ClusterFit(_text(cluster, logs, link, between, parameters), link, between, tuple(logs))


def write_cluster(paths: Sequence[Path], out: Path, gpu: str = "", fabric: str = "") -> ClusterFit:
    """Fit to these logs and write the file, whole or not at all."""
    fitted = fit_logs([read(path) for path in paths], gpu, fabric)
    write_file(out, fitted.text.encode())
    return fitted


def update_cluster(paths: Sequence[Path], file: Path, out: Path) -> list[str]:
    """Let the statistical model of a cluster's file learn from what a job's profiler saw; lines for a terminal.

    Raises:
        InputError: the file has no such model, the traces no collective of the cluster, or it cannot be written.
    """
    cluster = choose_cluster(cluster=file)
    parameters = parameters_of(cluster)
    found, left = seen.read(paths)
    fits = [each for each in found if max(each.ranks) < cluster.world_size and each.kind in parameters.minimum]
    if not fits:
        raise InputError(
            f"none of {len(found)} collectives of these traces is of a kind and of ranks that {file} has: "
            f"{cluster.world_size} GPUs, {', '.join(sorted(parameters.minimum))}"
        )
    points = [
        Point(Collective(each.kind, each.bytes, each.dtype, 0), each.ranks, cluster, each.own_us * 1e-6, "job")
        for each in fits
    ]
    # Its weights are of the time with stragglers taken out, and the shortest of all ranks has none.
    moved = updated(msgspec.structs.replace(parameters, straggler=(1.0, 0.0)), points)
    moved = with_stragglers(moved, [(len(each.ranks), each.bytes, each.late) for each in fits])
    kept = _without_statistical(file.read_text())
    write_file(out, ("\n".join([kept, *_statistical(moved)]) + "\n").encode())
    ratio = sorted(each.late for each in fits)[len(fits) // 2]
    before, now = _error(parameters, points), _error(moved, points)
    worse = "" if now <= before else ": no nearer, so keep the old file, or fit to logs that have these sizes"
    return [
        f"{len(fits)} collectives on {len(paths)} ranks",
        *(f"left out {count}: {why}" for why, count in left.items()),
        f"median error of the shortest times: {before:.1%} before, {now:.1%} now{worse}",
        f"late ranks make the third quartile {ratio:.2f} times as long in the median",
    ]


def _error(parameters: Parameters, points: Sequence[Point]) -> float:
    model = Statistical(msgspec.structs.replace(parameters, straggler=(1.0, 0.0)))
    errors = []
    for point in points:
        price = model.price(point.collective, Group("job", point.ranks, len(point.ranks)), point.cluster)
        errors.append(abs((price.duration_ns if price else 0) / (point.seconds * 1e9) - 1))
    return sorted(errors)[len(errors) // 2]


def _without_statistical(text: str) -> str:
    """A cluster's file without the tables of its statistical model."""
    parts = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    return "".join(part for part in parts if not part.startswith("[collectives.statistical")).rstrip("\n")


def described(fitted: ClusterFit) -> list[str]:
    """What was fitted and how well it holds, as lines for a terminal."""
    lines = [
        f"{log.path.name}: {log.kind} of {log.ranks} ranks on {log.nodes} node{'s' if log.nodes > 1 else ''}, "
        f"{len(log.rows)} sizes" + "".join(f"; {count} lines left out: {why}" for why, count in log.rejected.items())
        for log in fitted.logs
    ]
    for name, part in (("within a node", fitted.link), ("between nodes", fitted.fabric)):
        if part is None:
            lines.append(f"{name}: nothing fitted, the catalogue's constants stay")
        else:
            figures = f"median error {part.held_out_median:.1%}, 80 % within {part.held_out_p80:.1%}"
            lines.append(f"{name}: {figures}, on {part.points} sizes that the fit did not see")
    return lines


def _cluster(logs: Sequence[Log], gpu: str, fabric: str) -> Cluster:
    names = sorted({log.gpu for log in logs})
    if len(names) > 1:
        raise InputError(f"the logs are of different GPUs ({', '.join(names)}); fit each kind by itself")
    chosen = choose_cluster(gpu=gpu or names[0], nodes=max(log.nodes for log in logs), fabric=fabric or None)
    for log in logs:
        if log.ranks % log.nodes or log.ranks // log.nodes > chosen.gpus_per_node:
            raise InputError(
                f"{log.path}: {log.ranks} ranks on {log.nodes} nodes do not fill nodes of {chosen.gpus_per_node} "
                "evenly; give logs whose nodes have as many ranks each"
            )
    return chosen


def _with(cluster: Cluster, link: Fitted | None) -> Cluster:
    if link is None:
        return cluster
    return msgspec.structs.replace(cluster, collectives={"link": _constants(link.link)})


def _constants(constants: LinkConstants | FabricConstants) -> dict[str, object]:
    return {name: getattr(constants, name) for name in constants.__struct_fields__}


def _text(
    cluster: Cluster, logs: Sequence[Log], link: Fitted | None, between: Fitted | None, parameters: Parameters
) -> str:
    names = ", ".join(log.path.name for log in logs)
    lines = [
        f"# Made by `presim fit --nccl-tests` of {names}.",
        "# The measurements are used where they fit exactly, and between their sizes; the constants elsewhere.",
        f"gpu = {json.dumps(cluster.gpu.id)}",
        f"node = {json.dumps(cluster.node.id)}",
        f"fabric = {json.dumps(cluster.fabric.id)}",
        f"nodes = {cluster.nodes}",
        f"gpus_per_node = {cluster.gpus_per_node}",
        "",
        "[collectives]",
        'model = "white-box"  # or "statistical": TorchSim\'s model, fitted to the same logs',
        *_rows(logs),
    ]
    if link:
        lines += _table("collectives.link", _fitted(link, link.link, names))
    if between:
        lines += _table("collectives.fabric", _fitted(between, between.fabric, names))
    return "\n".join([*lines, *_statistical(parameters)]) + "\n"


def _statistical(parameters: Parameters) -> list[str]:
    return [
        *_table("collectives.statistical", {"straggler": parameters.straggler, "uncertainty": parameters.uncertainty}),
        *_table("collectives.statistical.within", _figures(parameters.within)),
        *_table("collectives.statistical.between", _figures(parameters.between)),
        *_table("collectives.statistical.minimum", dict(parameters.minimum)),
    ]


def _fitted(fitted: Fitted, constants: LinkConstants | FabricConstants, names: str) -> dict[str, object]:
    table = _constants(constants)
    width = round(min(max(fitted.held_out_p80, 0.05), 0.9), 3)
    return table | {
        "source": f"nccl-tests: {names}",
        "points": fitted.points,
        "held_out_median": round(fitted.held_out_median, 4),
        "uncertainty": width,
    }


def _figures(curve: Curve) -> dict[str, object]:
    return {name: float(f"{getattr(curve, name):.6g}") for name in curve.__struct_fields__}


def _table(name: str, values: dict[str, object]) -> list[str]:
    return ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]


def _rows(logs: Sequence[Log]) -> list[str]:
    """The measurements, one a line."""
    rows = [Row(log.kind, log.ranks, log.nodes, size, us) for log in logs for size, us in log.rows]
    inline = (
        ", ".join(f"{key} = {json.dumps(value)}" for key, value in msgspec.structs.asdict(row).items()) for row in rows
    )
    return ["measured = [", *(f"    {{ {row} }}," for row in inline), "]"]
