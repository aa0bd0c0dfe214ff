"""Best product found on each accelerator (MAMF: Bekman, Machine Learning Engineering, CC-BY-SA-4.0), in TFLOP/s.

A CSV with the columns accelerator, dtype, mamf_tflops and best_shape_MxNxK. One row per accelerator and type, the best
of hundreds of shapes and runs: an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from presim.cost.measured.importers.import_tables import Row, csv_rows, number
from presim.cost.measured.measured_rows import Measurement
from presim.hardware import catalogue
from presim.system.files import FormatError, decode_csv, read_text
from presim.trace.signatures import Gemm

_COLUMNS = {"accelerator", "dtype", "mamf_tflops", "best_shape_MxNxK"}
_DTYPES = {"bf16": ("bfloat16", ""), "fp16": ("float16", ""), "fp8": ("float8_e4m3fn", "bfloat16")}
_USUAL = {"NVIDIA A100 SXM": "a100-80gb-sxm", "NVIDIA A100 PCIe": "a100-80gb-pcie"}  # two cards of equal speed


def recognises(root: Path) -> bool:
    """Whether a path is such a table."""
    return bool(files(root))


def files(root: Path) -> list[Path]:
    """The table itself."""
    if not root.is_file() or root.suffix != ".csv":
        return []
    try:
        next(decode_csv(read_text(root, "check its permissions", errors="replace"), sorted(_COLUMNS)), None)
    except FormatError:
        return []
    return [root]


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """All rows; ``limit`` is ignored, since they are few."""
    for path in files(root):
        for row in csv_rows(path):
            yield _row(row)


def _row(row: Row) -> Measurement | str:
    name = str(row["accelerator"])
    gpu = _USUAL.get(name) or _by_name(name)
    if gpu is None:
        return f"a GPU that the catalogue does not have: {name}"
    rate, sides = number(row, "mamf_tflops"), str(row["best_shape_MxNxK"]).split("x")
    if not rate or rate <= 0 or len(sides) != 3 or not all(side.isdecimal() for side in sides):
        return "mamf_tflops is not a positive number, or best_shape_MxNxK is not a shape"
    if row["dtype"] not in _DTYPES:
        return f"a type that is not read: {row['dtype']}"
    dtype, out = _DTYPES[row["dtype"]]
    m, n, k = (int(side) for side in sides)
    work = Gemm(m, n, k, 1, dtype, out_dtype=out, layout="NT")
    return Measurement(gpu=gpu, signature=work, duration_ns=work.flops / rate / 1e3, source="mamf")


def _by_name(name: str) -> str | None:
    """By the catalogue's ids and names: NVIDIA H100 SXM is h100-sxm, NVIDIA GB200 SXM gb200."""
    words = name.lower().split()[1:]
    ids = {gpu.id for gpu in catalogue.gpus()}
    return next((gpu_id for gpu_id in ("-".join(words), words[0] if words else "") if gpu_id in ids), None)
