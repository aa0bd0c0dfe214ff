"""Fits the interval of the step time to published runs, and tests it on a held-out source.

    python validation/intervals.py CASES.csv... --captures DIR... [--most N] >table.md

Runs are priced and simulated like ``presim validate`` does; nothing is captured. Each source has the same weight.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Sequence

from kept_runs import KeptRun, kept_runs, options
from presim.analysis.notes.provenance import SPREAD, Doubts, Spread, host_ns
from presim.analysis.time.breakdown import break_down
from presim.analysis.time.steps import find_steps
from presim.cli.script import sentences
from presim.errors import InputError
from presim.studies.validation.error_summary import markdown
from presim_study.runs import simulate, step_s

STATED = 0.8
GRID = [
    Spread(together, clusters, experts, slower)
    for together, clusters, experts, slower in itertools.product(
        (0.0, 0.25, 0.5, 0.75), (0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12), (0.0, 0.08, 0.12, 0.16), (1.4, 1.6, 2.0, 3.0)
    )
]


TRIED = (  # beside those in use
    Spread(experts=0.0, host_slower=1.6),
    Spread(experts=0.0),
    Spread(experts=0.1),
    SPREAD,
    Spread(host_slower=1.5),
    Spread(clusters=0.07),
)


@dataclasses.dataclass(frozen=True)
class Run:
    """One published run and the contributions to its uncertainty."""

    source: str
    measured_ns: float
    doubts: Doubts

    def held(self, spread: Spread) -> bool:
        """Whether the measured time lies in the interval."""
        low, high = self.doubts.interval(spread)
        return low <= self.measured_ns <= high


def doubted(kept: KeptRun) -> Run | None:
    """The contributions to the uncertainty of a run; None if there is no step time."""
    found = simulate(kept.plan, kept.traces)
    whole = step_s(kept.plan, kept.traces, found)
    if whole is None:
        return None
    trace, device = found.priced.trace, found.device
    step = find_steps(trace, found.timeline).steady
    parts = break_down(trace, found.timeline, step, launch_latency_ns=device.launch_latency_ns)
    host = host_ns(trace, step.entries, device.host_factor, device.calls)
    doubts = Doubts.of(found.priced, parts, step.duration_ns, host)
    return Run(kept.source, kept.measured_s / whole * step.duration_ns, doubts)


def coverage(found: Sequence[Run], spread: Spread) -> float:
    """Share of the runs with the measured time in the interval."""
    held = [run.held(spread) for run in found]
    return sum(held) / len(held)


def score(found: Sequence[Run], spread: Spread) -> float:
    """Mean of Winkler's interval score, in measured step times: the width, and ten times what lies beyond it.

    Least in expectation where the ends are the quantiles of 10 and 90 % (Gneiting and Raftery 2007, section 6.2).
    """
    total = 0.0
    for run in found:
        low, high = run.doubts.interval(spread)
        beyond = max(low - run.measured_ns, run.measured_ns - high, 0.0)
        total += (high - low + 2 / (1 - STATED) * beyond) / run.measured_ns
    return total / len(found)


def fit(by_source: dict[str, list[Run]]) -> Spread:
    """The spread with the smallest score; each source has the same weight."""
    return min(GRID, key=lambda spread: sum(score(members, spread) for members in by_source.values()))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    by_source: dict[str, list[Run]] = {}
    for kept in kept_runs(parser.parse_args()):
        if run := doubted(kept):
            by_source.setdefault(run.source, []).append(run)
    if not by_source:
        raise InputError("no step came about in any of these runs")
    lines = []
    for name, members in sorted(by_source.items()):
        rest = fit({other: found for other, found in by_source.items() if other != name})
        figures = (coverage(members, spread) for spread in (SPREAD, rest))
        lines.append([name, str(len(members)), *(f"{share:.0%}" for share in figures), _said(rest)])
    whole = [run for members in by_source.values() for run in members]
    lines.append(["all", str(len(whole)), f"{coverage(whole, SPREAD):.0%}", "", ""])
    print(f"In use: {_said(SPREAD)}. Fitted to all of these: {_said(fit(by_source))}.\n")
    print(markdown(["source", "runs", "holds", "holds if fitted to the others", "fitted to the others"], lines))
    print(compared(whole))


def compared(found: Sequence[Run]) -> str:
    """Coverage and score with other figures, for runs with and without expert parallelism across ranks."""
    parts = {
        "with experts": [run for run in found if run.doubts.experts],
        "without": [run for run in found if not run.doubts.experts],
        "all": found,
    }
    parts = {f"{name} ({len(runs)})": runs for name, runs in parts.items() if runs}
    lines = [
        [_said(spread), *(f"{coverage(runs, spread):.0%}" for runs in parts.values()), f"{score(found, spread):.3f}"]
        for spread in TRIED
    ]
    return markdown(["figures", *parts, "mean score"], lines)


def _said(spread: Spread) -> str:
    figures = (f"{name.replace('_', ' ')} {value:g}" for name, value in dataclasses.asdict(spread).items())
    return ", ".join(figures)


if __name__ == "__main__":
    with sentences():
        main()
