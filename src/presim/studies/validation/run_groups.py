"""Groups of runs for tables and plots: by source, GPU, parallelism and size."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping

from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.gpus import gpu_of

Row = Mapping[str, str]
_AXES = ("tp", "pp", "cp", "ep", "dp")
_SIZES = (1, 8, 64, 512)  # GPUs that a group has at most
_UNKNOWN = "not stated"


def source(row: Row) -> str:
    """Source of a case: the first part of its source cell, without line numbers; the name of a repository."""
    text = row.get("source", "") or row.get("framework", "") or _UNKNOWN
    repository = re.match(r"github:[^:# ]+", text)
    return repository[0] if repository else re.split(r"[#]| row | line ", text)[0].strip()


def gpu(row: Row) -> str:
    """The catalogue's id of the GPU, or the cell's text if the catalogue lacks it."""
    try:
        return gpu_of(Case(row))
    except CannotBuildError:
        return row["gpu"] or _UNKNOWN


def parallelism(row: Row) -> str:
    """The forms of parallelism with more than one rank, without their sizes."""
    axes = [axis for axis in _AXES if Case(row).number(axis) not in (None, 0.0, 1.0)]
    return " + ".join(axes).upper() or "one GPU"


def size(row: Row) -> str:
    """Range of the number of GPUs, in factors of eight."""
    count = Case(row).number("n_gpus")
    if count is None:
        return _UNKNOWN
    for lower, upper in itertools.pairwise((0, *_SIZES)):
        if count <= upper:
            return f"{lower + 1} to {upper}" if upper > 1 else "1"
    return f"{_SIZES[-1] + 1} and more"


GROUPS: Mapping[str, Callable[[Row], str]] = {
    "source": source,
    "GPU": gpu,
    "parallelism": parallelism,
    "number of GPUs": size,
}


def sort_key(name: str) -> tuple[int, str]:
    """Sort key of a group: its leading number, then its name."""
    number = re.match(r"\d+", name)
    return (int(number[0]) if number else 0, name)
