"""Fits the duration of DeepEP's kernels for training and prefill on one host, and tests it with each source left out.

    python validation/fit_deepep.py [papers/deepep.csv]

The printed constants are those of `[exchange.deepep]` in `src/presim/hardware/constants/collectives.toml`, unrounded.
Each source has the same weight for each kind of exchange, independent of its number of rows. Takes ten seconds.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cli.script import sentences
from presim.cost.collectives.collective_constants import ExchangeConstants, exchange_constants
from presim.cost.collectives.expert_exchange import seconds_of
from presim.cost.collectives.group_placement import layout_of, links_of
from presim.errors import InputError
from presim.studies.validation.cases import Case
from presim.studies.validation.exchanges import counted_bytes, exchange
from presim.studies.validation.published_collectives import COLLECTIVES, cluster_of
from presim.trace.schema import Group

_NAMES = (
    "base_us", "link dispatch", "link combine", "copy_us dispatch", "copy_us combine", "KiB_us dispatch",
    "KiB_us combine", "factors_us", "window_us hopper", "window_us blackwell",
)  # fmt: skip
_START = (40.0, 0.7, 0.65, 1.0, 0.2, 0.4, 0.5, 0.5, 3.0, 10.0)
_STEPS, _NUDGE, _DAMPING = 60, 1e-4, 0.02
_LEFT_OUT = "| {} | {} | {:.1f} % | {:.1f} % |"


class Row:
    """A measured exchange, and its prediction with given constants."""

    def __init__(self, case: Case) -> None:
        cluster = cluster_of(case)
        found = exchange(case, cluster)
        group = Group("all", tuple(range(cluster.world_size)), cluster.world_size)
        layout = layout_of(found, group, cluster)
        self.source = case.text("source").split(":")[1] + " " + case.text("source").split()[-1].split(":")[-1]
        self.weighs_with = (self.source, found.kind, found.dtype)
        bandwidth = case.number("algbw_gbps")
        counted = counted_bytes(found, cluster) / (bandwidth * 1e9) if bandwidth else 0.0
        self.measured = (case.number("time_us") or 0.0) * 1e-6 or counted
        links = links_of(cluster, layout)
        assert found.routed is not None
        self.arguments = (found, found.routed, layout, links)

    def error(self, constants: ExchangeConstants) -> float:
        """Logarithm of predicted over measured time."""
        return float(np.log(sum(seconds_of(*self.arguments, constants)) / self.measured))


def constants_of(values: Sequence[float]) -> ExchangeConstants:
    """The packaged constants with these values replaced, in the order of `_NAMES`."""
    packaged = exchange_constants("deepep")
    assert packaged.copying is not None
    base, *rest = map(float, values)
    pairs = [(rest[0], rest[1]), (rest[2], rest[3]), (rest[4], rest[5])]
    copying = msgspec.structs.replace(
        packaged.copying, copy_us=pairs[1], KiB_us=pairs[2], factors_us=rest[6],
        window_us={"hopper": rest[7], "blackwell": rest[8]},
    )  # fmt: skip
    return msgspec.structs.replace(packaged, base_us=base, link_efficiency=pairs[0], copying=copying)


def fitted(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Least squares of the rows' errors over the constants' logarithms, by damped Gauss-Newton steps."""
    alike = collections.Counter(row.weighs_with for row in rows)
    weights = np.array([alike[row.weighs_with] ** -0.5 for row in rows])

    def errors(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        constants = constants_of(list(np.exp(logs)))
        return weights * np.array([row.error(constants) for row in rows])

    at = np.log(np.array(_START))
    for _ in range(_STEPS):
        now = errors(at)
        slopes = np.stack([(errors(at + _NUDGE * unit) - now) / _NUDGE for unit in np.eye(len(at))], axis=1)
        step = np.linalg.solve(slopes.T @ slopes + _DAMPING * np.eye(len(at)), -slopes.T @ now)
        at = _downhill(errors, at, now, step)
    return np.exp(at)


def _downhill(
    errors: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    at: NDArray[np.float64],
    now: NDArray[np.float64],
    step: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The largest part of a step that reduces the errors; zero if none does."""
    for share in (1.0, 0.5, 0.25, 0.1, 0.03):
        if np.sum(errors(at + share * step) ** 2) < np.sum(now**2):
            return at + share * step
    return at


def main() -> None:
    """Print the constants, and the errors with each source left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", type=Path, default=Path(__file__).parent / "papers" / "deepep.csv")
    rows = _rows(parser.parse_args().table)
    for name, value in zip(_NAMES, fitted(rows), strict=True):
        print(f"{name:18} {value:.3g}")
    print("\n| left out | rows | off in the median | at most |\n|---|---:|---:|---:|")
    for source in dict.fromkeys(row.source for row in rows):
        constants = constants_of(list(fitted([row for row in rows if row.source != source])))
        off = [abs(np.expm1(row.error(constants))) * 100 for row in rows if row.source == source]
        print(_LEFT_OUT.format(source, len(off), np.median(off), max(off)))


def _rows(path: Path) -> list[Row]:
    kept = []
    for row in COLLECTIVES.read(path):
        case = Case(row)
        is_here = case.text("collective").startswith("deepep_normal") and case.text("nodes") == "1"
        if is_here and "initial" not in case.text("library_version"):
            kept.append(Row(case))
    if not kept:
        raise InputError(f"{path} has no exchanges of DeepEP's normal kernels on one host")
    return kept


if __name__ == "__main__":
    with sentences():
        main()
