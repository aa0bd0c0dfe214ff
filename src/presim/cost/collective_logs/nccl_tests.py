"""Logs of nccl-tests as its programs print them, also with prefixes that launchers put before lines."""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import statistics
from pathlib import Path

from presim.errors import InputError
from presim.system.files import read_text

_PROGRAMS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
    "gather": "gather",
    "scatter": "scatter",
}
_PROGRAM = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv|gather|scatter)_perf"
)
# Bus bandwidth of n ranks over the bandwidth of the bytes, in nccl-tests: so often (n - 1) / n; 1 for other kinds.
_ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "gather": 1, "scatter": 1}
_NAMED = re.compile(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send_?recv)", re.IGNORECASE)
_DEVICE = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[\S+\]\s*(.*)")
_SHAPE = re.compile(r"^#\s+nThread \d+ nGpus (\d+) ")
_LINE = re.compile(r"^\s*\d+\s+\d+\s+[a-z]\w*\s+[a-z]\w*\s+\S")  # size, count, type, redop, …
# Of MPI ("[1,0]<stdout>:"), Slurm ("0: "), torchrun ("[0]") and kubectl ("[pod/name/container] ").
_RATIO_TOLERANCE, _FEWEST_GBPS = 0.1, 0.2
_PREFIX = re.compile(r"^(?:\[[^\]]*\](?:<std(?:out|err)>)?:?|\s*\d+:)\s?")


@dataclasses.dataclass(frozen=True)
class Log:
    """One run: its measurements, its cluster, and the rejected lines."""

    path: Path
    kind: str
    ranks: int
    nodes: int
    gpu: str  # the driver's name
    rows: tuple[tuple[int, float], ...]  # bytes, us
    rejected: dict[str, int]  # reason -> lines
    thread_gpus: int = 1  # GPUs launched in turn by one thread


def read(path: Path) -> Log:
    """The out-of-place times of a log.

    Raises:
        InputError: it is not an nccl-tests log, or names neither a collective nor its ranks.
    """
    text = read_text(path, "give logs of nccl-tests", errors="replace")
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    devices = [match for line in lines if (match := _DEVICE.search(line))]
    table_lines = [line.split() for line in lines if _LINE.match(line)]
    has_root = any(line.startswith("#") and " redop " in line and " root " in line for line in lines)
    if not table_lines:
        raise InputError(
            f"{path}: has no lines of nccl-tests (size, count, type, redop, root, time, …); give its output"
        )
    if not devices:
        raise InputError(f"{path}: names no devices (# Rank 0 …), so ranks and nodes are unknown; keep the whole log")
    time_column = 5 if has_root else 4
    ranks = len({int(match[1]) for match in devices})
    if ranks == 1:
        rows, rejected = list[tuple[int, float]](), {"a single rank moves no data": len(table_lines)}
    else:
        rows, rejected = _valid_rows(table_lines, time_column)
    named_kind = _kind_by_name(path, lines)
    if named_kind and ranks > 1:
        _check_kind(path, named_kind, table_lines, time_column, ranks)
    return Log(
        path=path,
        kind=named_kind
        or (_kind_by_bandwidths(path, table_lines, time_column, ranks) if ranks > 1 else "a collective"),
        ranks=ranks,
        nodes=len({match[2] for match in devices}),
        gpu=devices[0][3].strip(),
        rows=tuple(rows),
        rejected=rejected,
        thread_gpus=next((int(shape[1]) for line in lines if (shape := _SHAPE.search(line))), 1),
    )


def _valid_rows(table_lines: list[list[str]], time_column: int) -> tuple[list[tuple[int, float]], dict[str, int]]:
    """One row per size: the median if a log has several.

    ``time_column``: the column of the out-of-place time, us. Bandwidth in GB/s follows it.
    """
    times: dict[int, list[float]] = {}
    rejected = collections.Counter[str]()
    for columns in table_lines:
        try:
            size, time, bandwidth = int(columns[0]), float(columns[time_column]), float(columns[time_column + 1])
        except (ValueError, IndexError):
            rejected["columns that are not numbers"] += 1
            continue
        reason = _reason_to_reject(size, time, bandwidth)
        reason = reason or ("a second line with the same figures" if time in times.get(size, ()) else "")
        if reason:
            rejected[reason] += 1
        else:
            times.setdefault(size, []).append(time)
    return [(size, statistics.median(times_of_size)) for size, times_of_size in times.items()], dict(rejected)


def _reason_to_reject(size: int, time: float, bandwidth: float) -> str:
    if size <= 0 or not time > 0:
        return "no bytes or no time"
    if abs(size / time / 1e3 - bandwidth) > 0.02 + 0.02 * bandwidth:
        return "size, time and bandwidth do not agree"
    return ""


def _kind_by_name(path: Path, lines: list[str]) -> str:
    """The collective named in the log, or in the file's name; empty if neither names one."""
    programs = {match for line in lines for match in _PROGRAM.findall(line)}
    if len(programs) == 1:
        return _PROGRAMS[programs.pop()]
    named = _NAMED.search(path.name)
    plain = named[1].lower().replace("_", "") if named else ""
    return next((kind for name, kind in _PROGRAMS.items() if name.replace("_", "") == plain), "")


def _check_kind(path: Path, kind: str, table_lines: list[list[str]], time_column: int, ranks: int) -> None:
    """Refuse a log whose bandwidth of the bus is another than its kind has, as of a file with a wrong name."""
    expected = _ROUNDS[kind] * (ranks - 1) / ranks if kind in _ROUNDS else 1.0
    ratios = [ratio for columns in table_lines if (ratio := _bus_ratio(columns, time_column)) and math.isfinite(ratio)]
    if ratios and abs(statistics.median(ratios) / expected - 1) > _RATIO_TOLERANCE:
        raise InputError(
            f"{path}: the bus bandwidth is {statistics.median(ratios):.2f} of the bytes' bandwidth, and {kind} of "
            f"{ranks} ranks has {expected:.2f}; name the file after its collective, and keep the lines of all its ranks"
        )


def _bus_ratio(columns: list[str], time_column: int) -> float:
    """Bandwidth of the bus over that of the bytes; 0 where the digits of the log are too few to tell."""
    try:
        algorithm_GBps, bus_GBps = float(columns[time_column + 1]), float(columns[time_column + 2])
    except (ValueError, IndexError):
        return 0.0
    return bus_GBps / algorithm_GBps if algorithm_GBps >= _FEWEST_GBPS else 0.0


def _kind_by_bandwidths(path: Path, table_lines: list[list[str]], time_column: int, ranks: int) -> str:
    """The kind, from the ratio of bus to algorithm bandwidth, for reductions: 2 (n - 1) / n for an all-reduce."""
    largest = max(table_lines, key=lambda columns: float(columns[time_column + 1]))
    ratio = float(largest[time_column + 2]) / max(float(largest[time_column + 1]), 1e-9)
    rooted = time_column == 5 and largest[4] != "-1"
    share = (ranks - 1) / ranks
    for kind, expected in (("all_reduce", 2 * share), ("reduce_scatter", share)):
        if largest[3] != "none" and not rooted and abs(ratio / expected - 1) < 0.02:
            return kind
    raise InputError(f"{path}: does not name the collective; name the file after it, e.g. all_gather.log")
