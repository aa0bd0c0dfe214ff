"""How much host time each step of published runs asks for, whatever the step, by node type: Megatron-LM's own tests.

    python validation/host_per_step.py CASES.csv... --captures DIR... [--most N] >table.md

Runs are priced and simulated with two factors of host time; between them, and around, a step's time is a straight line.
A factor and a constant (of the reference host, which the factor makes longer as all host time) are chosen by the share
of runs within 20 % of what was measured. Programs fall in halves by a hash of their arguments, and what was chosen on
either half is tried on the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from kept_runs import KeptRun, kept_runs, options
from numpy.typing import NDArray

from presim.cli.script import sentences
from presim.engine.options import Options
from presim.validation.solve import simulate, step_s
from presim.validation.summary import markdown

FACTORS = (1.8, 2.8)
GRID = np.arange(1.0, 3.01, 0.1)
CONSTANTS_MS = np.arange(0, 21, 1)
OFF = 3.0  # recordings that took so many times as long as the prediction tell of their machine


@dataclasses.dataclass(frozen=True)
class Run:
    """A step's time without any constant at factor 0, and what the factor adds."""

    half: int
    measured_s: float
    start_s: float
    slope_s: float

    def error(self, factor: float, constant_ms: float) -> float:
        """Of the prediction."""
        return (self.start_s + factor * (self.slope_s + constant_ms / 1e3)) / self.measured_s - 1


def timed(kept: KeptRun) -> Run | None:
    """The run; None where no step came about."""
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
    """How far off [run] each is."""
    return np.abs([run.error(*chosen) for run in runs])


def best(runs: Sequence[Run], constants_ms: NDArray[np.int64]) -> tuple[float, float]:
    """Factor and constant with most runs within 20 %, of such the ones with the least median."""
    grid = [(float(factor), float(constant)) for factor in GRID for constant in constants_ms]

    def rank(chosen: tuple[float, float]) -> tuple[float, float]:
        off = errors(runs, chosen)
        return float((off <= 0.2).mean()), -float(np.median(off))

    return max(grid, key=rank)


def row(node: str, runs: Sequence[Run]) -> tuple[str, ...]:
    """What is chosen without and with a constant, on all runs and on the other half of them."""
    cells = [node, str(len(runs))]
    for constants in (CONSTANTS_MS[:1], CONSTANTS_MS):
        factor, constant = best(runs, constants)
        apart = [
            errors([r for r in runs if r.half != h], best([r for r in runs if r.half == h], constants)) for h in (0, 1)
        ]
        held_out = np.concatenate(apart)
        off = errors(runs, (factor, constant))
        cells += [f"{factor:.1f}, {constant:.0f} ms", f"{np.median(off):.1%}, {(off <= 0.2).mean():.0%}"]
        cells.append(f"{np.median(held_out):.1%}, {(held_out <= 0.2).mean():.0%}")
    return tuple(cells)


def main() -> None:
    """One row for each node type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    found: dict[str, list[Run]] = defaultdict(list)
    for kept in kept_runs(parser.parse_args()):
        run = timed(kept) if kept.plan.between_steps_ns and not kept.plan.input_s else None
        if run is not None and run.error(2.0, 0.0) > 1 / OFF - 1:
            found[kept.plan.cluster.node.id].append(run)
    titles = [
        f"{what} {how}"
        for how in ("without", "with")
        for what in ("factor, constant", "median, within 20 %", "held out")
    ]
    print(markdown(("node type", "runs", *titles), [row(*each) for each in sorted(found.items())]))


if __name__ == "__main__":
    with sentences():
        main()
