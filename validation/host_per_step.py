"""Derives a constant host time per step, by node type, from Megatron-LM's own tests.

    python validation/host_per_step.py CASES.csv... --captures DIR... [--most N] >table.md

Runs are priced and simulated with two host factors; around these the step time is assumed to be linear in the factor. A
factor and a constant (in time of the reference host, scaled by the factor) are chosen to maximise the share of runs
within 20 % of the measurement, for each node type alone and with one constant for all. Programs are split into halves
by a hash of their arguments, and the choice of each half is tested on the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kept_runs import KeptRun, kept_runs, options
from presim.cli.script import sentences
from presim.engine.simulation_options import Options
from presim.studies.validation.error_summary import markdown
from presim_study.runs import simulate, step_s

FACTORS = (1.8, 2.8)
GRID = np.arange(1.0, 3.01, 0.1)
CONSTANTS_MS = range(21)
OFF = 3.0  # recordings that took so many times as long as the prediction tell of their machine


@dataclasses.dataclass(frozen=True)
class Run:
    """Step time of a run with factor 0 and no constant, and its derivative by the factor."""

    half: int
    measured_s: float
    start_s: float
    slope_s: float

    def error(self, factor: float, constant_ms: float) -> float:
        """Relative error of the prediction."""
        return (self.start_s + factor * (self.slope_s + constant_ms / 1e3)) / self.measured_s - 1


Nodes = Mapping[str, Sequence[Run]]  # of each node type
Chosen = Mapping[str, tuple[float, float]]  # likewise: factor and constant


def timed(kept: KeptRun) -> Run | None:
    """The run; None if there is no step time."""
    times = []
    for factor in FACTORS:
        step = step_s(kept.plan, kept.traces, simulate(kept.plan, kept.traces, Options(host_factor=factor)))
        if step is None:
            return None
        times.append(step - factor * kept.plan.between_steps_ns / 1e9)
    slope = (times[1] - times[0]) / (FACTORS[1] - FACTORS[0])
    half = hashlib.sha256(" ".join(kept.plan.args).encode()).digest()[0] % 2
    return Run(half, kept.measured_s, times[0] - FACTORS[0] * slope, slope)


def errors(runs: Sequence[Run], chosen: tuple[float, float]) -> NDArray[np.float64]:
    """Relative error of each run [run]."""
    return np.abs([run.error(*chosen) for run in runs])


def _rank(off: NDArray[np.float64]) -> tuple[float, float]:
    return float((off <= 0.2).mean()), -float(np.median(off))


def best(runs: Sequence[Run], constants_ms: Sequence[int]) -> tuple[float, float]:
    """Factor and constant with the most runs within 20 %; ties go to the smallest median error."""
    grid = [(float(factor), float(constant)) for factor in GRID for constant in constants_ms]
    return max(grid, key=lambda chosen: _rank(errors(runs, chosen)))


def by_itself(nodes: Nodes, constants_ms: Sequence[int]) -> Chosen:
    """A factor and a constant for each node type."""
    return {node: best(runs, constants_ms) for node, runs in nodes.items()}


def with_one_constant(nodes: Nodes) -> Chosen:
    """A factor for each node type, with one constant for all of them."""
    each = [by_itself(nodes, [constant]) for constant in CONSTANTS_MS]
    return max(each, key=lambda chosen: _rank(np.concatenate([errors(nodes[node], chosen[node]) for node in nodes])))


def columns(nodes: Nodes, choose: Callable[[Nodes], Chosen]) -> dict[str, tuple[str, str, str]]:
    """For each node type: the choice, its fit, and the choice of each half tested on the other half."""
    chosen = choose(nodes)
    halves = [{node: [run for run in runs if run.half == half] for node, runs in nodes.items()} for half in (0, 1)]
    held_out = [(halves[1 - half], choose(halves[half])) for half in (0, 1)]
    return {
        node: (
            _shown(chosen[node]),
            _how_far(errors(runs, chosen[node])),
            " or ".join(_shown(apart[node]) for _, apart in held_out)
            + ": "
            + _how_far(np.concatenate([errors(others[node], apart[node]) for others, apart in held_out])),
        )
        for node, runs in nodes.items()
    }


def _shown(chosen: tuple[float, float]) -> str:
    return f"{chosen[0]:.1f}, {chosen[1]:.0f} ms"


def _how_far(off: NDArray[np.float64]) -> str:
    return f"{np.median(off):.1%}, {(off <= 0.2).mean():.0%}"


def main() -> None:
    """Print one row per node type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    found: dict[str, list[Run]] = defaultdict(list)
    for kept in kept_runs(parser.parse_args()):
        run = timed(kept) if kept.plan.between_steps_ns and not kept.plan.input_s else None
        if run is not None and run.error(2.0, 0.0) > 1 / OFF - 1:
            found[kept.plan.cluster.node.id].append(run)
    ways = [
        ("a factor alone", lambda nodes: by_itself(nodes, [0])),
        ("factor and constant", lambda nodes: by_itself(nodes, CONSTANTS_MS)),
        ("factor, one constant for all", with_one_constant),
    ]
    titles = [f"{way}: {what}" for way, _ in ways for what in ("chosen", "median, within 20 %", "held out")]
    cells = [columns(found, choose) for _, choose in ways]
    rows = [(node, str(len(found[node])), *(cell for part in cells for cell in part[node])) for node in sorted(found)]
    print(markdown(("node type", "runs", *titles), rows))


if __name__ == "__main__":
    with sentences():
        main()
