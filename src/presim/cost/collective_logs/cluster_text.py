"""Text of a cluster file, as TOML: its parts, the measurements, and the fitted constants and models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from presim.cost.collective_logs.fit_collectives import Fitted
from presim.cost.collective_logs.nccl_tests import Log
from presim.cost.collectives.collective_constants import FabricConstants, LinkConstants
from presim.cost.collectives.measured import CollectiveRow
from presim.cost.collectives.statistical import Curve, Parameters
from presim.hardware import Cluster


def text(
    cluster: Cluster,
    parts: Mapping[str, str],
    logs: Sequence[Log],
    link: Fitted | None,
    between: Fitted | None,
    parameters: Parameters,
) -> str:
    """The whole file. ``parts``: an id or a path for each of gpu, node and fabric."""
    names = ", ".join(dict.fromkeys(file_name(log, logs) for log in logs))
    lines = [
        f"# Made by `presim fit --nccl-tests` from {names}.",
        "# A measurement applies to its exact case and is interpolated between sizes; the constants apply elsewhere.",
        *(f"{key} = {json.dumps(part)}" for key, part in parts.items()),
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
    return "\n".join([*lines, *statistical_tables(parameters)]) + "\n"


def statistical_tables(parameters: Parameters) -> list[str]:
    """The lines of the statistical model's tables."""
    return [
        *_table("collectives.statistical", {"straggler": parameters.straggler, "uncertainty": parameters.uncertainty}),
        *(
            _table(
                "collectives.statistical.straggler_of",
                {json.dumps(name): line for name, line in parameters.straggler_of.items()},
            )
            if parameters.straggler_of
            else ()
        ),
        *_table("collectives.statistical.within", _figures(parameters.within)),
        *_table("collectives.statistical.between", _figures(parameters.between)),
        *_table("collectives.statistical.minimum", dict(parameters.minimum)),
    ]


def _fitted(fitted: Fitted, constants: LinkConstants | FabricConstants, names: str) -> dict[str, object]:
    table = constants_of(constants)
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
    """The measurements, one per line."""
    rows = [CollectiveRow(log.kind, log.ranks, log.nodes, size, us) for log in logs for size, us in log.rows]
    inline = (
        ", ".join(f"{key} = {json.dumps(value)}" for key, value in msgspec.structs.asdict(row).items()) for row in rows
    )
    return ["measured = [", *(f"    {{ {row} }}," for row in inline), "]"]


def constants_of(constants: LinkConstants | FabricConstants) -> dict[str, object]:
    """Constants as a table of the file."""
    return {name: getattr(constants, name) for name in constants.__struct_fields__}


def file_name(log: Log, among: Sequence[Log]) -> str:
    """A file's name, with its folder if another folder has a file of the same name."""
    name = log.path.name
    return (
        name
        if all(other.path == log.path or other.path.name != name for other in among)
        else f"{log.path.parent.name}/{name}"
    )
