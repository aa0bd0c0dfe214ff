"""What each part of a prediction is worth: published runs with parts left out.

    python validation/ablation.py CASES.csv CAPTURES [RECIPES] >validation/results/ablation.md

CASES.csv has published runs, CAPTURES their captures as ``presim validate --captures`` keeps them; other cases are left
out. RECIPES: those that the captures were made with, where they have changed since. Nothing is captured.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from presim.analysis.steps import find_steps
from presim.cost.analytic.device import device_of
from presim.cost.analytic.estimator import AnalyticEstimator
from presim.cost.chain import Chain, price_trace
from presim.cost.collectives.models import collective_models
from presim.cost.learned.estimator import LearnedEstimator
from presim.engine.options import Options
from presim.engine.simulate import simulate_job
from presim.errors import PresimError
from presim.hardware import Cluster
from presim.trace.representatives import Representatives
from presim.trace.schema import Trace
from presim.validation.captures import Captures
from presim.validation.cases import read_cases
from presim.validation.plan import Plan
from presim.validation.planners import plan
from presim.validation.solve import further_work_s
from presim.validation.summary import markdown, percent, quantile


@dataclasses.dataclass(frozen=True)
class Variant:
    """What is taken into account."""

    name: str
    learned: bool = True
    busy: bool = True  # clocks of a busy GPU rather than those of tables
    contention: bool = True
    host: bool = True

    def chain(self, cluster: Cluster, nccl: Mapping[str, str]) -> Chain:
        """Who prices."""
        formula = AnalyticEstimator(cluster.gpu, burst=not self.busy)
        corrected = [LearnedEstimator(cluster.gpu, burst=not self.busy)] if self.learned else []
        return Chain((*corrected, formula), collective_models(cluster, nccl), device_of(cluster.gpu))

    def step_s(self, traces: Sequence[Trace], planned: Plan) -> float:
        """The step time of the first trace's rank, for all of its micro-batches where fewer were captured."""
        cluster = planned.cluster
        priced = [price_trace(trace, cluster, self.chain(cluster, trace.manifest.nccl)) for trace in traces]
        options = Options.of(contention=self.contention, host_time=self.host and not planned.graphs)
        representatives = Representatives([trace.manifest.rank for trace in traces], None)
        timelines = simulate_job(priced, options=options, representatives=representatives)
        steps = find_steps(traces[0], timelines[traces[0].manifest.rank])
        times = [step.duration_ns / 1e9 for step in steps.steps]
        if planned.repeats and len(times) > 2:
            busy_s = max(further_work_s(trace, timelines[trace.manifest.rank]) for trace in traces)
            return float(planned.repeats.step_time(times[1], times[2], busy_s))
        return steps.steady.duration_ns / 1e9


VARIANTS = (
    Variant("all of it"),
    Variant("without contention", contention=False),
    Variant("without learned corrections", learned=False),
    Variant("at the clocks of tables", busy=False),
    Variant("formulas at the clocks of tables, without contention", learned=False, busy=False, contention=False),
    Variant("without the host's time", host=False),
)


def main() -> None:
    """Print a table for all sources and each of them."""
    recipes = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(__file__).parent / "recipes"
    captures = Captures(recipes, Path(sys.argv[2]))
    errors: dict[str, dict[str, list[float]]] = {}
    for case in read_cases(Path(sys.argv[1])):
        try:
            planned = plan(case)
            if not case.text("step_time_s") or not captures.has(planned):
                continue
            traces = captures.traces(planned)
            found = [variant.step_s(traces, planned) for variant in VARIANTS]
        except PresimError:
            continue
        source = case.text("source").removeprefix("github:").split(":")[0].split(",")[0]
        for variant, seconds in zip(VARIANTS, found):
            error = seconds / float(case.text("step_time_s")) - 1
            for name in (source, "all"):
                errors.setdefault(name, {}).setdefault(variant.name, []).append(error)
    names = sorted(errors, key=lambda name: (name == "all", name))
    headings = ["prices", *(f"{name} ({len(errors[name][VARIANTS[0].name])})" for name in names)]
    rows = [[variant.name, *(_said(errors[name][variant.name]) for name in names)] for variant in VARIANTS]
    print("Median error of step times, its 90 % quantile in brackets, by source and number of runs.\n")
    print(markdown(headings, rows))


def _said(errors: Sequence[float]) -> str:
    sizes = [abs(error) for error in errors]
    return f"{percent(statistics.median(sizes))} ({percent(quantile(sizes, 0.9))})"


if __name__ == "__main__":
    main()
