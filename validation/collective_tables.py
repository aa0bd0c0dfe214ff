"""Readers of public NCCL logs; see `operator_tables` for their results."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from operator_tables import Case, evenly
from presim.trace.signatures import Collective


def vtrain(root: Path, count: int) -> Iterator[Case]:
    """All-reduce within one DGX A100 or V100: look-up tables by size."""
    for folder, gpu in (("a100", "a100-80gb-sxm"), ("v100", "v100-32gb-sxm")):
        for ranks in range(2, 9):
            with (root / "trace" / folder / f"AR_GPU{ranks}_1M_1024M_LUT").open(newline="") as file:
                rows = [dict(zip(("size", "count", "type", "time"), row)) for row in csv.reader(file)][1:]
            for row in evenly(rows, max(count // 10, 1)):
                work = Collective(kind="all_reduce", bytes=int(row["size"]), dtype="float32", group=0)
                yield Case(gpu, "all_reduce in a node", "vtrain", (work,), int(row["time"]) * 1e-9, ranks=ranks)


_PROCESS = re.compile(r"Rank +\d+ Pid +(\d+)")
_HIDDEN = 1.5  # of what launching alone takes; below, a log of one thread says nothing of the collective
_ECHO_LINE = re.compile(r"^(?:\[\S+)?\s*(\d+)\s+\d+\s+float\s+sum\s+(?:-1\s+)?([\d.]+)", re.MULTILINE)


def echo(root: Path, count: int) -> Iterator[Case]:
    """nccl-tests all-reduce on 2 to 32 A100 of Azure ND A100 v4.

    Within a node one thread launches for all GPUs: 8.5, 16 and 31 us for 2, 4 and 8 of them, whatever the size. Jobs
    have a process for each, as these tests have between nodes: sizes that such launches hide are left out.
    """
    for ranks in (2, 4, 8, 16, 32):
        text = (root / f"nccl_{ranks}.log").read_text()
        rows = _ECHO_LINE.findall(text)
        alone = len(set(_PROCESS.findall(text))) == 1
        least = _HIDDEN * min(float(time) for _, time in rows) if alone else 0.0
        for size, time in ((size, time) for size, time in rows if float(time) >= least):
            work = Collective(kind="all_reduce", bytes=int(size), dtype="float32", group=0)
            where = "in a node" if ranks <= 8 else "between nodes"
            kind = f"all_reduce {where}"
            yield Case("a100-40gb-sxm", kind, "echo", (work,), float(time) * 1e-6, ranks=ranks, fabric="ib-hdr-200")


_GPUS = {"H100 SXM 80GB": "h100-sxm", "A100 SXM 80GB": "a100-80gb-sxm"}
_KINDS = {"all_reduce": "all_reduce", "alltoall": "all_to_all"}
_FABRICS = {"RoCE": "roce-200", "TCPXO": "gcp-tcpxo-200"}  # words of inter_link


def nccl_csv(path: Path, count: int) -> Iterator[Case]:
    """Logs of nccl-tests collected in a CSV: gpu, n_gpus, nodes, inter_link, collective, size_bytes, time_us.

    What ``gpu`` says in brackets tells clusters apart.
    """
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["collective"] in _KINDS and row["time_us"]]
    for row in rows:
        gpu = next((known for name, known in _GPUS.items() if row["gpu"].startswith(name)), None)
        if gpu is None or "degraded" in row["confidence"]:
            continue
        work = Collective(kind=_KINDS[row["collective"]], bytes=int(float(row["size_bytes"])), dtype="float32", group=0)
        where = "between nodes" if int(row["nodes"]) > 1 else "in a node"
        named = [fabric for word, fabric in _FABRICS.items() if word in row["inter_link"]]
        fabric = "" if row["nodes"] == "1" else (named or ["ib-ndr-400"])[0]
        machine = re.search(r"\((.+)\)", row["gpu"])
        kind = f"{work.kind} {where}"
        seconds, ranks = float(row["time_us"]) * 1e-6, int(row["n_gpus"])
        source = f"nccl-tests, {machine[1]}" if machine else "nccl-tests"
        yield Case(gpu, kind, source, (work,), seconds, ranks=ranks, fabric=fabric)
