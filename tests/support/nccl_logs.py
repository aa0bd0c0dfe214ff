"""Logs of nccl-tests as its programs would print them on a machine that behaves like the white-box model."""

from __future__ import annotations

from pathlib import Path

from presim.cost.collectives.hierarchical import Hierarchical
from presim.hardware import Cluster
from presim.trace.schema import Group
from presim.trace.signatures import Collective

SCATTERED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
HEADER = "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw #wrong"


def line(size: int, us: float, bus: float = 1.75, redop: str = "sum") -> str:
    algorithm = size / us / 1e3
    figures = f"{us:8.2f} {algorithm:7.2f} {algorithm * bus:7.2f}      0"
    return f"{size:12} {size // 4:12}     float  {redop:>6}      -1 {figures} {figures}"


def text(cluster: Cluster, kind: str, ranks: int, nodes: int, prefix: str = "") -> str:
    """A whole log; sizes from 8 B to 1 GiB."""
    group = Group("all", tuple(range(ranks)), ranks)
    lines = [f"# Collective test starting: {kind}_perf", "# Using devices"]
    for rank in range(ranks):
        where = f"host{rank * nodes // ranks}"
        lines.append(
            f"#  Rank {rank:2} Group  0 Pid   {1000 + rank} on {where} device  {rank % 8} [0x18] {cluster.gpu.name}"
        )
    lines.append(HEADER)
    for power in range(3, 31):
        work = Collective(kind, 1 << power, "float32", 0)
        rounds = 2 if kind == "all_reduce" else 1 if kind in SCATTERED else ranks / (ranks - 1)
        us = Hierarchical().alone(work, group, cluster).duration_ns / 1e3
        lines.append(line(1 << power, us, rounds * (ranks - 1) / ranks))
    return "\n".join(prefix + each for each in [*lines, "# Avg bus bandwidth    : 50.0"]) + "\n"


def write(folder: Path, cluster: Cluster, kind: str, ranks: int, nodes: int) -> Path:
    path = folder / f"{kind}-{ranks}.log"
    path.write_text(text(cluster, kind, ranks, nodes))
    return path
