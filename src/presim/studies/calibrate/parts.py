"""Parts of a cluster that a calibration may change: host factor, rates of GPUs, bandwidths of links."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from presim.errors import InputError
from presim.hardware import Cluster, catalogue
from presim.hardware.codec import keys, to_key_unit, to_table
from presim.hardware.gpu_schema import Sourced
from presim.system.files import check_writable, write_file

Part: TypeAlias = Literal["arithmetic", "memory", "nvlink", "network", "host"]
WORDS: Mapping[Part, str] = {
    "arithmetic": "GPU, arithmetic",
    "memory": "GPU, memory bandwidth",
    "nvlink": "NVLink bandwidth",
    "network": "network bandwidth",
    "host": "host factor",
}
_PEAKS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "fp64", "fp64_tensor")
TYPICAL_HOST = 0.0  # of a node: not known


def with_factors(cluster: Cluster, factors: Mapping[Part, float]) -> Cluster:
    """The cluster with rates multiplied; ``host`` is the factor of its hosts itself."""
    gpu, node, fabric = cluster.gpu, cluster.node, cluster.fabric
    if "arithmetic" in factors:
        rates = {f"{name}_flops": getattr(gpu, f"{name}_flops") * factors["arithmetic"] for name in _PEAKS}
        gpu = msgspec.structs.replace(gpu, **rates)
    if "memory" in factors:
        gpu = msgspec.structs.replace(gpu, memory_bytes_per_s=gpu.memory_bytes_per_s * factors["memory"])
    if "nvlink" in factors:
        gpu = msgspec.structs.replace(gpu, nvlink_bytes_per_s=gpu.nvlink_bytes_per_s * factors["nvlink"])
    if "network" in factors:
        fabric = msgspec.structs.replace(fabric, port_bytes_per_s=fabric.port_bytes_per_s * factors["network"])
    if "host" in factors:
        node = msgspec.structs.replace(node, host_factor=factors["host"])
    return msgspec.structs.replace(cluster, gpu=gpu, node=node, fabric=fabric)


def check_new(path: Path) -> None:
    """Check that the file does not exist yet and can be written.

    Raises:
        InputError: see above.
    """
    if path.exists():
        raise InputError(f"{path} is there already and is never overwritten; name another file with --out")
    check_writable(path)


def write(cluster: Cluster, path: Path, source: str) -> None:
    """The cluster as a file for ``--cluster``; ``source``: what its changed figures rest on.

    Raises:
        InputError: the file is there already, or cannot be written.
    """
    check_new(path)
    lines = [f"# {source}", f"nodes = {cluster.nodes}", f"gpus_per_node = {cluster.gpus_per_node}"]
    for name in ("gpu", "node", "fabric"):
        table = _table(getattr(cluster, name), source)
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    for name in ("nccl", "collectives", "network"):
        if override := getattr(cluster, name):
            lines += ["", f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in override.items())]
    write_file(path, ("\n".join(lines) + "\n").encode())


def _table(part: Sourced, source: str) -> dict[str, Any]:
    """The TOML table of a part: its differences from the catalogue's part of this id, or all keys if there is none."""
    kind = type(part)
    if part.id not in catalogue.ids(kind):
        return to_table(part)
    before = catalogue.find(kind, part.id)
    table: dict[str, Any] = {"id": part.id, "base": part.id}
    changed_keys = [key for key in keys(kind) if key.figure and getattr(part, key.field) != getattr(before, key.field)]
    table |= {key.key: to_key_unit(key, getattr(part, key.field)) for key in changed_keys}
    if changed_keys:
        table["sources"] = [{"text": source, "keys": [key.key for key in changed_keys], "estimate": False}]
    return table


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(key))} = {_toml(content)}" for key, content in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)
