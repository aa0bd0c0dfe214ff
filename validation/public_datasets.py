"""Public datasets for comparisons with prices: reader, location and commit of each."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import aiconfigurator_tables
import collective_tables
import operator_tables
from operator_tables import Case
from presim.cost.measured.importers import find
from presim.errors import InputError

READERS: dict[str, Callable[[Path, int], Iterator[Case]]] = {
    "aiconfigurator": aiconfigurator_tables.aiconfigurator,
    "neusight": operator_tables.neusight,
    "vidur": operator_tables.vidur,
    "frontier": operator_tables.frontier,
    "simumax": operator_tables.simumax,
    "vtrain": collective_tables.vtrain,
    "echo": collective_tables.echo,
    "nccl_csv": collective_tables.nccl_csv,
}
OF_COLLECTIVES = ("aiconfigurator", "vidur", "vtrain", "echo", "nccl_csv")


def options(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add a command-line option for each dataset."""
    for name in names:
        metavar = "FILE" if name == "nccl_csv" else "DIR"
        parser.add_argument(_option(name), dest=name, type=Path, metavar=metavar)


def given(chosen: argparse.Namespace, names: Iterable[str]) -> dict[str, Path]:
    """The datasets that were named.

    Raises:
        InputError: none was.
    """
    named = {name: path for name in names if (path := getattr(chosen, name))}
    if not named:
        raise InputError(f"no dataset is named; give at least one of {', '.join(map(_option, names))}")
    return named


def read(datasets: Mapping[str, Path], count: int) -> list[Case]:
    """The cases of all datasets, at most so many a table.

    Raises:
        InputError: a folder is not what its option says.
    """
    return [case for name, path in datasets.items() for case in _cases(name, path, count)]


def named(datasets: Mapping[str, Path]) -> str:
    """The datasets with their commits. In a CSV of logs, each row names its source."""
    logs = "(public nccl-tests logs, each row of the CSV with its source)"
    commits = {name: logs if path.is_file() else find.commit(path) or "unknown" for name, path in datasets.items()}
    return ", ".join(f"{name.replace('_csv', '')} {commit}" for name, commit in commits.items())


@contextlib.contextmanager
def expected(dataset: str) -> Iterator[None]:
    """Context for reading a dataset: errors in it become an `InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{dataset}: {error.filename} cannot be read ({error.strerror})") from error
    except KeyError as error:
        raise InputError(f"{dataset} is no such dataset: a table of it has no {error}") from error
    except (ValueError, TypeError) as error:  # text where numbers are, or nothing
        raise InputError(f"{dataset} is no such dataset: {str(error).splitlines()[0]}") from error


def _cases(name: str, path: Path, count: int) -> list[Case]:
    with expected(f"{_option(name)} {path}"):
        cases = list(READERS[name](path, count))
    if not cases:
        raise InputError(f"{_option(name)} {path} holds no row of that dataset; name the top of its checkout")
    return cases


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
