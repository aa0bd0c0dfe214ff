"""How wide the interval of a step time has to be, from published runs; and how that holds on a source left out.

    python validation/intervals.py CASES.csv CAPTURES [RECIPES] >validation/results/intervals.md

CASES.csv has published runs, CAPTURES their captures as ``presim validate --captures`` keeps them; other cases are left
out. RECIPES: those that the captures were made with, where they have changed since. Each source
counts alike, however many runs it has.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from presim.analysis.breakdown import break_down
from presim.analysis.provenance import SPREAD, Doubts, Spread, host_ns
from presim.analysis.steps import find_steps
from presim.engine.options import Options
from presim.errors import PresimError
from presim.pipeline import device_of, evaluate
from presim.validation.captures import Captures
from presim.validation.cases import read_cases
from presim.validation.planners import plan
from presim.validation.summary import markdown

STATED = 0.8
GRID = [
    Spread(together, clusters, slower)
    for together, clusters, slower in itertools.product(
        (0.0, 0.25, 0.5, 0.75), (0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12), (1.5, 2.0, 3.0, 4.0, 6.0)
    )
]


@dataclasses.dataclass(frozen=True)
class Run:
    """One published run, and what presim is unsure of in it."""

    source: str
    measured_ns: float
    doubts: Doubts

    def held(self, spread: Spread) -> bool:
        """Whether the interval holds the measured time."""
        low, high = self.doubts.interval(spread)
        return low <= self.measured_ns <= high


def runs(table: Path, captures: Captures) -> Iterator[Run]:
    """The cases that have a capture and a measured time."""
    for case in read_cases(table):
        try:
            planned = plan(case)
            if not case.text("step_time_s") or not captures.has(planned):
                continue
            options = Options.of(host_time=not planned.graphs)
            found = evaluate(captures.traces(planned), planned.cluster, options, rank=planned.ranks[0])
        except PresimError:
            continue
        trace = found.priced.trace
        steps = find_steps(trace, found.timeline)
        step = steps.steady
        parts = break_down(trace, found.timeline, step, launch_latency_ns=options.launch_latency_ns)
        device = device_of(planned.cluster, trace, options)
        host = host_ns(trace, step.entries, device.host_factor, options.calls)
        doubts = Doubts.of(found.priced, parts, step.duration_ns, host)
        times = [each.duration_ns for each in steps.steps]
        whole = planned.repeats.step_time(*times[1:3]) if planned.repeats and len(times) > 2 else step.duration_ns
        measured_ns = float(case.text("step_time_s")) * 1e9 * step.duration_ns / whole
        yield Run(_source(case.text("source")), measured_ns, doubts)


def _source(text: str) -> str:
    return text.removeprefix("github:").split(":")[0].split(",")[0]


def coverage(found: Sequence[Run], spread: Spread) -> float:
    """Share of the runs whose interval holds."""
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
    """The spread with the least score, each source counting alike."""
    return min(GRID, key=lambda spread: sum(score(members, spread) for members in by_source.values()))


def main() -> None:
    """Print the table."""
    recipes = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(__file__).parent / "recipes"
    captures = Captures(recipes, Path(sys.argv[2]))
    by_source: dict[str, list[Run]] = {}
    for run in runs(Path(sys.argv[1]), captures):
        by_source.setdefault(run.source, []).append(run)
    lines = []
    for name, members in sorted(by_source.items()):
        rest = fit({other: found for other, found in by_source.items() if other != name})
        figures = (coverage(members, spread) for spread in (SPREAD, rest))
        lines.append([name, str(len(members)), *(f"{share:.0%}" for share in figures), _said(rest)])
    whole = [run for members in by_source.values() for run in members]
    lines.append(["all", str(len(whole)), f"{coverage(whole, SPREAD):.0%}", "", ""])
    print(f"In use: {_said(SPREAD)}. Fitted to all of these: {_said(fit(by_source))}.\n")
    print(markdown(["source", "runs", "holds", "holds if fitted to the others", "fitted to the others"], lines))


def _said(spread: Spread) -> str:
    return f"together {spread.together:g}, clusters {spread.clusters:g}, host slower {spread.host_slower:g}"


if __name__ == "__main__":
    main()
