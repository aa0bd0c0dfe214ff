"""Groups of runs for tables and plots: by source, GPU, parallelism and size."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping

from presim.validation.cases import CannotBuildError, Case
from presim.validation.gpus import gpu_of

Row = Mapping[str, str]
_AXES = ("tp", "pp", "cp", "ep", "dp")
_SIZES = (1, 8, 64, 512)  # GPUs that a group has at most
_NOT_SAID = "not said"


def source(row: Row) -> str:
    """Where the case comes from: the first part of its source, without line numbers; of a repository its name."""
    text = row.get("source", "") or row.get("framework", "") or _NOT_SAID
    repository = re.match(r"github:[^:# ]+", text)
    return repository[0] if repository else re.split(r"[#]| row | line ", text)[0].strip()


def gpu(row: Row) -> str:
    """The catalogue's id, however the table writes it; its own words where the catalogue has no such GPU."""
    try:
        return gpu_of(Case(row))
    except CannotBuildError:
        return row["gpu"] or _NOT_SAID


def parallelism(row: Row) -> str:
    """The axes with more than one member, without their sizes."""
    axes = [axis for axis in _AXES if Case(row).number(axis) not in (None, 0.0, 1.0)]
    return " + ".join(axes).upper() or "one GPU"


def size(row: Row) -> str:
    """How many GPUs, in steps of eight times."""
    count = Case(row).number("n_gpus")
    if count is None:
        return _NOT_SAID
    for below, most in itertools.pairwise((0, *_SIZES)):
        if count <= most:
            return f"{below + 1} to {most}" if most > 1 else "1"
    return f"{_SIZES[-1] + 1} and more"


GROUPS: Mapping[str, Callable[[Row], str]] = {
    "source": source,
    "GPU": gpu,
    "parallelism": parallelism,
    "number of GPUs": size,
}


def in_order(name: str) -> tuple[int, str]:
    """Sorts groups by the number in front, then by name."""
    number = re.match(r"\d+", name)
    return (int(number[0]) if number else 0, name)
