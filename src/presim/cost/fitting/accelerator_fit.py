"""Fits an accelerator's shares of its datasheet and the start of a kernel to the user's table of operators.

The table is CSV with the columns ``op``, ``dtype`` and ``us``; for ``op = "matmul"`` also ``m``, ``n``, ``k`` and, if
it is not 1, ``batch``; for ``op = "copy"`` (or other work that is limited by memory) ``bytes``, read and written. Every
second row of each kind is held out, and its errors are the interval of prices by the fit.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.bounds import datasheet_ns
from presim.errors import InputError
from presim.hardware import Gpu, catalogue
from presim.hardware.codec import load_toml
from presim.system.files import FormatError, check_apart, check_writable, decode_csv, read_text, write_file
from presim.trace.signatures import Elementwise, Gemm, Signature

_OPERATORS = ("matmul", "copy")
_FEWEST = 6  # rows of each kind: three for the fit, three held out
_TOLERANCE = 0.98  # of the datasheet's time: rounding of the timer
_ROUNDS = 6
_LEAST_SHARE, _LAUNCH_NS = 0.02, (100, 1_000_000)


@dataclasses.dataclass(frozen=True)
class OperatorRow:
    """One measured operator."""

    operator: str
    work: Signature
    seconds: float


@dataclasses.dataclass(frozen=True)
class DeviceFit:
    """Figures of a device by a fit, and their error on the rows that it did not see."""

    gpu: Gpu
    rows: int
    dropped: int
    median_error: float
    spread: float  # 80 of 100 held-out rows are within it


def write_device(tables: Sequence[Path], device: str, out: Path) -> DeviceFit:
    """Fit a device's figures to tables, and write its file with them to ``out``.

    Raises:
        InputError: the device is a GPU or no file of the user's own or the catalogue's, or the tables are too small.
    """
    check_writable(out)
    check_apart(out, tables)
    gpu = catalogue.gpu(device)
    if gpu.is_gpu:
        raise InputError(
            f"{gpu.id} is a GPU, of which `presim profile --import` and `presim fit DATA` take measurements"
        )
    rows = [row for path in tables for row in read_rows(path)]
    fit = fit_device(gpu, rows)
    write_file(out, _text(fit, device, tables).encode())
    return fit


def read_rows(path: Path) -> list[OperatorRow]:
    """The rows of a table.

    Raises:
        InputError: a column is missing, or a cell is not what its column says.
    """
    try:
        cells = list(decode_csv(read_text(path, "name a CSV table of operators"), ("op", "dtype", "us")))
    except FormatError as error:
        raise InputError(f"{path}: {error}; the columns are op, dtype, us, and m, n, k, batch or bytes") from error
    return [_row(row, f"{path}: row {number}") for number, row in enumerate(cells, 1)]


def _row(cells: dict[str, str], location: str) -> OperatorRow:
    operator = cells["op"]
    if operator not in _OPERATORS:
        raise InputError(f"{location}: op = {operator!r} is none of {', '.join(_OPERATORS)}; correct it")
    seconds = _number(cells, "us", location) * 1e-6
    if operator == "copy":
        size = int(_number(cells, "bytes", location))
        work: Signature = Elementwise(
            bytes_read=size // 2, bytes_written=size - size // 2, elements=size // 4, dtype=cells["dtype"]
        )
        return OperatorRow(operator, work, seconds)
    m, n, k = (int(_number(cells, name, location)) for name in "mnk")
    batch = int(_number(cells, "batch", location)) if cells.get("batch") else 1
    return OperatorRow(operator, Gemm(m=m, n=n, k=k, batch=batch, dtype=cells["dtype"]), seconds)


def _number(cells: dict[str, str], name: str, location: str) -> float:
    text = cells.get(name, "")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < 1e18:
        raise InputError(f"{location}: {name} = {text!r} must be a positive number; correct it")
    return number


def fit_device(gpu: Gpu, rows: Sequence[OperatorRow]) -> DeviceFit:
    """The device with the shares and the start that meet every second row best.

    Raises:
        InputError: too few possible rows of a kind.
    """
    possible = [row for row in rows if row.seconds * 1e9 >= _TOLERANCE * datasheet_ns(row.work, gpu)]
    by_operator = {name: [row for row in possible if row.operator == name] for name in _OPERATORS}
    for name, members in by_operator.items():
        if len(members) < _FEWEST:
            raise InputError(
                f"{len(members)} rows of {name} are possible by the datasheet of {gpu.id}, of {len(rows)} rows in all; "
                f"give at least {_FEWEST} of each of {' and '.join(_OPERATORS)}"
            )
    ordered = {name: sorted(members, key=lambda row: row.seconds) for name, members in by_operator.items()}
    fitted = list(itertools.chain.from_iterable(members[::2] for members in ordered.values()))
    held_out_rows = list(itertools.chain.from_iterable(members[1::2] for members in ordered.values()))
    device = _least(gpu, fitted)
    errors = np.abs(_errors(device, held_out_rows))
    spread = float(np.quantile(errors, 0.8))
    device = msgspec.structs.replace(device, share_spread=max(round(spread, 3), 0.01))
    return DeviceFit(device, len(possible), len(rows) - len(possible), float(np.median(errors)), spread)


def _least(gpu: Gpu, rows: Sequence[OperatorRow]) -> Gpu:
    """Coordinate descent on the sum of relative errors, in ever smaller steps."""
    device = msgspec.structs.replace(gpu, matrix_share=0.7, memory_share=0.8, launch_ns=5000)
    step = 2.0
    for _ in range(_ROUNDS):
        for field in ("matrix_share", "memory_share", "launch_ns", "matrix_share"):
            grid = [_moved(device, field, step ** (power / 4)) for power in range(-4, 5)]
            device = min(grid, key=_badness(rows))
        step = math.sqrt(step)
    return device


def _moved(device: Gpu, field: str, factor: float) -> Gpu:
    value = getattr(device, field) * factor
    value = (
        min(max(round(value), _LAUNCH_NS[0]), _LAUNCH_NS[1])
        if field == "launch_ns"
        else min(max(value, _LEAST_SHARE), 1.0)
    )
    return msgspec.structs.replace(device, **{field: value})


def _badness(rows: Sequence[OperatorRow]) -> Callable[[Gpu], float]:
    return lambda device: float(np.mean(np.abs(np.log1p(_errors(device, rows)))))


def _errors(device: Gpu, rows: Sequence[OperatorRow]) -> np.ndarray:
    prices = AnalyticEstimator(device).price([row.work for row in rows])
    return np.array(
        [(price.duration_ns if price else math.nan) * 1e-9 / row.seconds - 1 for price, row in zip(prices, rows)]
    )


def _text(fit: DeviceFit, device: str, tables: Sequence[Path]) -> str:
    """The device's own file, or a reference to the catalogue's, with the figures of the fit."""
    figures = {key: f"{getattr(fit.gpu, key):.4g}" for key in ("matrix_share", "memory_share", "share_spread")}
    figures["launch_us"] = f"{fit.gpu.launch_ns / 1000:.3g}"
    table: dict[str, Any] = (
        load_toml(Path(device)) if device.endswith(".toml") else {"base": catalogue.builtin_path(Gpu, device).stem}
    )
    table = {key: value for key, value in table.items() if key not in figures}
    lines = [f"{key} = {_toml(value)}" for key, value in table.items() if key != "sources"]
    lines += [f"{key} = {value}" for key, value in figures.items()]
    names = ", ".join(path.name for path in tables)
    text = f"presim fit --operators: {fit.rows} rows of {names}, median error {fit.median_error:.1%} on those held out"
    sources: list[dict[str, Any]] = [
        {**entry, "keys": [key for key in entry["keys"] if key not in figures]} for entry in table.get("sources", [])
    ]
    sources.append({"text": text, "keys": list(figures)})
    for entry in filter(lambda entry: entry["keys"], sources):
        lines += ["", "[[sources]]", *(f"{key} = {_toml(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A word, number, flag or list of them, as TOML writes it. JSON writes these alike."""
    return msgspec.json.encode(value).decode()


def describe_fit(fit: DeviceFit, out: Path) -> list[str]:
    """The outcome in lines."""
    gpu = fit.gpu
    start_us = f"{gpu.launch_ns / 1000:.3g} us"
    lines = [
        f"{out}: products reach {gpu.matrix_share:.0%} of the peak, copies {gpu.memory_share:.0%} of the bandwidth, "
        f"and a kernel starts in {start_us}",
        f"{fit.rows} rows, every second one held out: median error {fit.median_error:.1%}, "
        f"80 of 100 within {fit.spread:.1%}",
    ]
    if fit.dropped:
        lines.append(f"{fit.dropped} rows were dropped: faster than the datasheet allows")
    return lines
