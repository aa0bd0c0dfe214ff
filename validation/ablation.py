"""Measures the contribution of each part of a prediction: published runs with parts left out.

    python validation/ablation.py CASES.csv... --captures DIR... [--prices DIR] [--most N] >table.md

Runs are priced and simulated like ``presim validate`` does; nothing is captured. ``--prices``: a folder of measured
tables, as written by ``presim profile --import``. They take precedence over all other prices in an additional row.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from kept_runs import KeptRun, kept_runs, options
from presim.cli.script import sentences
from presim.cost import estimators
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.chain import Chain
from presim.cost.collectives.network_models import collective_models
from presim.cost.learned.learned_estimator import LearnedEstimator
from presim.cost.price import Estimator
from presim.engine.simulation_options import Options
from presim.errors import InputError, PresimError
from presim.hardware import Cluster
from presim.studies.validation.error_summary import markdown, percent, quantile
from presim.trace.schema import Trace
from presim_study.runs import simulate, step_s


@dataclasses.dataclass(frozen=True)
class Variant:
    """The parts of a prediction that are used."""

    name: str
    learned: bool = True
    busy: bool = True  # clocks of a busy GPU rather than those of tables
    contention: bool = True
    host: bool = True
    prices: tuple[Path, ...] = ()  # folders of measured tables

    def chain(self, cluster: Cluster, trace: Trace) -> Chain:
        """The estimators of the variant."""
        asked: list[Estimator] = [AnalyticEstimator(cluster.gpu, burst=not self.busy)]
        if self.learned:
            asked.insert(0, LearnedEstimator(cluster.gpu, burst=not self.busy))
        if self.prices:
            asked = list(estimators.estimators(cluster.gpu, self.prices))
        return Chain(asked, collective_models(cluster, trace.manifest.nccl), device_of(cluster.gpu))

    def step_s(self, run: KeptRun) -> float | None:
        """The step time of the run."""
        cluster = run.plan.cluster
        options = Options.of(contention=self.contention, host_time=self.host)
        found = simulate(run.plan, run.traces, options, lambda trace: self.chain(cluster, trace))
        return step_s(run.plan, run.traces, found)


VARIANTS = (
    Variant("all of it: learned prices, contention, the host's time"),
    Variant("without contention", contention=False),
    Variant("analytic prices only", learned=False),
    Variant("analytic prices only, without contention", learned=False, contention=False),
    Variant("learned prices at the clocks of tables", busy=False),
    Variant("analytic prices at the clocks of tables, without contention", learned=False, busy=False, contention=False),
    Variant("without the host's time", host=False),
)


def main() -> None:
    """Print a table for all sources and each of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--prices", metavar="DIR", type=Path, help="folder of measured tables, in one more row")
    chosen = parser.parse_args()
    variants = list(VARIANTS)
    if chosen.prices:
        estimators.check([chosen.prices])
        variants.insert(2, Variant("measured prices where a table has them", prices=(chosen.prices,)))
    errors: dict[str, dict[str, list[float]]] = {}
    for run in kept_runs(chosen):
        try:
            found = [variant.step_s(run) for variant in variants]
        except PresimError as error:
            print(error, file=sys.stderr)
            continue
        for variant, seconds in zip(variants, found):
            for name in (run.source, "all"):
                errors.setdefault(name, {}).setdefault(variant.name, []).append((seconds or 0.0) / run.measured_s - 1)
    if not errors:
        raise InputError("no run could be priced and simulated; the lines above say why")
    names = sorted(errors, key=lambda name: (name == "all", name))
    headings = ["prices", *(f"{name} ({len(errors[name][variants[0].name])})" for name in names)]
    rows = [[variant.name, *(_said(errors[name][variant.name]) for name in names)] for variant in variants]
    print("Median error of step times, its 90 % quantile in brackets, by source and number of runs.\n")
    print(markdown(headings, rows))


def _said(errors: Sequence[float]) -> str:
    sizes = [abs(error) for error in errors]
    return f"{percent(statistics.median(sizes))} ({percent(quantile(sizes, 0.9))})"


if __name__ == "__main__":
    with sentences():
        main()
