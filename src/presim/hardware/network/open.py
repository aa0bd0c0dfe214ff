"""Open a network: a cluster file with a ``[network]`` table, or a topology file of another tool."""

from __future__ import annotations

import re
from pathlib import Path

from presim.errors import InputError
from presim.hardware import choose_cluster
from presim.hardware.network import foreign, link_lists, nccl_topology, topology_files
from presim.hardware.network.build_topology import plan_of, topology_of
from presim.hardware.network.topology import Topology
from presim.hardware.network.unused_keys import unused_keys_note
from presim.system.files import read_text, shortened
from presim.units import quantities

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def open_network(path: str | Path) -> Topology:
    """Read a topology; the format is detected from name and content.

    Raises:
        InputError: the file cannot be read, or its format is unknown.
    """
    file = Path(path)
    if file.suffix == ".toml":
        cluster = choose_cluster(cluster=file)
        return topology_of(cluster, cluster.network)
    text = read_text(file, "give a text file")
    reader = _reader(file, text)
    try:
        return reader(text)
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{file}: {reason}; it looks like a topology of {reader.__name__}, but is invalid: compare it "
            "with that tool's examples"
        ) from error


def unused_note(path: str | Path) -> str:
    """A sentence on what of a cluster's ``[network]`` has no effect; empty: nothing, or another tool's file."""
    return unused_keys_note(choose_cluster(cluster=Path(path))) if Path(path).suffix == ".toml" else ""


def exported(path: str | Path, form: str) -> str:
    """The network of a file in the form of another tool: ns3, simai or htsim.

    Raises:
        InputError: the file cannot be read, or that form cannot state its network.
    """
    if form == "ns3":
        return topology_files.ns3(open_network(path))
    if Path(path).suffix != ".toml":
        raise InputError(f"{path}: for {form} give a cluster's .toml file; topologies of other tools are for ns3")
    cluster = choose_cluster(cluster=Path(path))
    if form == "simai":
        return topology_files.simai(topology_of(cluster, cluster.network), cluster.gpu.id.split("-")[0].upper())
    return topology_files.htsim(plan_of(cluster, cluster.network))


def _reader(file: Path, text: str) -> foreign.Reader:
    if file.suffix in (".yml", ".yaml") or "npus_count" in text:
        return foreign.astra_sim
    if text.lstrip().startswith("<"):
        return nccl_topology.nccl
    if re.search(r"^\s*GPU0\s", text, re.MULTILINE):
        return foreign.nvidia_smi
    if re.search(r"^tiers\s+\d", text, re.MULTILINE | re.IGNORECASE):
        return foreign.htsim
    if re.match(r"\s*\d+ \d+ \d+ \d+ \d+ \S+", text):
        return link_lists.simai
    if re.match(r"\s*\d+[ \t]+\d+[ \t]+\d+[ \t]*\n", text):
        return link_lists.ns3
    raise InputError(
        f"{file} has no known topology format: presim reads cluster files (.toml), ASTRA-sim (.yml), htsim (.topo), "
        "ns-3, SimAI, NCCL (.xml) and `nvidia-smi topo -m`"
    )


def bytes_of(text: str) -> int:
    """Parse a size with its unit.

    >>> bytes_of("64MiB"), bytes_of("1GB")
    (67108864, 1000000000)
    """
    match = re.fullmatch(r"(\d{1,20}(?:\.\d{1,20})?) ?([a-z]*)", text.lower(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise InputError(f"{shortened(text)!r} is not a size; write it like 64MiB or 1GB")
    size = int(float(match[1]) * _UNITS[match[2]])
    quantities.MESSAGE_BYTES.check(size, text)
    return size


def ranks_of(text: str) -> tuple[int, ...]:
    """Parse ranks and ranges.

    >>> ranks_of("0-3,8"), ranks_of("0-24:8")
    ((0, 1, 2, 3, 8), (0, 8, 16, 24))
    """
    ranks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", part.strip(), re.ASCII)
        if match is None:
            raise InputError(f"{shortened(part)!r} is not a list of ranks; write them like 0-63, 0-56:8 or 0,8,16")
        quantities.RANK.check(int(match[2] or match[1]), part)
        if match[2] and int(match[2]) < int(match[1]):
            raise InputError(f"{part.strip()} names no rank: its end is below its start; write {match[2]}-{match[1]}")
        ranks += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
    return tuple(dict.fromkeys(ranks))
