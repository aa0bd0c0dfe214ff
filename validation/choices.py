"""Compares the plan that presim ranks first with the fastest measured plan, on published sweeps over plans.

    python validation/choices.py CASES.csv... [--predictions results/predictions.csv] [--out results/choices.md]

CASES.csv are tables of published runs for ``presim validate``. Runs with the same source, framework, model, machine,
precision, sequence and global batch form a group; its runs differ in the plan. Predicted step times are read from an
earlier output of ``presim validate``; nothing is captured.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError
from presim.studies.validation.case_tables import read_table
from presim.studies.validation.error_summary import markdown
from presim.system.files import check_writable, write_file

RESULTS = Path(__file__).parent / "results"
SAME = (  # what a group has in common, besides its source
    *("framework", "framework_version", "model", "n_layers", "hidden", "gpu", "n_gpus", "gpus_per_node"),
    *("intra_link", "inter_link", "precision", "seq_len", "global_batch", "optimizer", "compile", "other"),
)
PLAN = ("micro_batch", "tp", "pp", "vp", "cp", "ep", "etp", "sharding", "seq_parallel", "act_ckpt")
GOAL = 0.02


@dataclasses.dataclass(frozen=True)
class Run:
    """One plan of a group. For a plan with several measurements, their medians."""

    measured_s: float
    predicted_s: float


@dataclasses.dataclass(frozen=True)
class Group:
    """Plans for one model on one machine with one batch."""

    source: str
    name: str
    runs: Sequence[Run]

    @property
    def regret(self) -> float:
        """Slowdown of the plan ranked first relative to the fastest plan, both as measured."""
        first = min(self.runs, key=lambda run: run.predicted_s)
        return first.measured_s / self._best - 1

    @property
    def of_a_draw(self) -> float:
        """Mean slowdown of a random plan relative to the fastest plan."""
        return statistics.mean(run.measured_s for run in self.runs) / self._best - 1

    @property
    def tau(self) -> float:
        """Kendall's tau of predicted and measured order: 1 where all pairs agree, -1 where none does."""
        return kendall([run.predicted_s for run in self.runs], [run.measured_s for run in self.runs])

    @property
    def _best(self) -> float:
        return min(run.measured_s for run in self.runs)


def kendall(first: Sequence[float], second: Sequence[float]) -> float:
    """Tau-a: pairs in the same order less those in the other, as a share of all pairs.

    >>> kendall([1, 2, 3], [1, 3, 2])
    0.3333333333333333
    """
    pairs = list(itertools.combinations(zip(first, second), 2))
    agree = sum((a > c) == (b > d) and a != c and b != d for (a, b), (c, d) in pairs)
    differ = sum((a > c) != (b > d) and a != c and b != d for (a, b), (c, d) in pairs)
    return (agree - differ) / len(pairs)


def groups(cases: Sequence[Mapping[str, str]], predicted: Mapping[str, Mapping[str, str]]) -> list[Group]:
    """The sweeps over plans among cases."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], list[Run]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for case in cases:
        row = predicted.get(case["id"])
        if row is None or not row["predicted_step_time_s"] or not row["step_time_s"] or not case.get("global_batch"):
            continue
        run = Run(float(row["step_time_s"]), float(row["predicted_step_time_s"]))
        same = (source_of(case), *(case.get(name, "") for name in SAME))
        found[same][tuple(case.get(name, "") for name in PLAN)].append(run)
    return [
        Group(same[0], name_of(same), [middle(runs) for runs in plans.values()])
        for same, plans in sorted(found.items())
        if len(plans) > 1
    ]


def source_of(case: Mapping[str, str]) -> str:
    """The repository or paper of a case.

    >>> source_of({"source": "github:owner/name:file#row 3"})
    'owner/name'
    """
    return case["source"].removeprefix("github:").split(":")[0]


def name_of(same: Sequence[str]) -> str:
    """Model, GPUs, sequence and batch."""
    said = dict(zip(SAME, same[1:]))
    return f"{said['model']}, {said['n_gpus']} {said['gpu']}, {said['seq_len']} tokens, batch {said['global_batch']}"


def middle(runs: Sequence[Run]) -> Run:
    """Medians over the measurements of each plan."""
    return Run(statistics.median(run.measured_s for run in runs), statistics.median(run.predicted_s for run in runs))


def page(found: Sequence[Group], predictions: Path, files: Sequence[str]) -> str:
    """The page of results."""
    larger = {number: [group for group in found if len(group.runs) >= number] for number in (3, 5)}
    by_source = collections.defaultdict(list)
    for group in found:
        by_source[group.source].append(group)
    rows = [line(source, some) for source, some in sorted(by_source.items())]
    rows += [
        line("all", found),
        *(line(f"all with {number} plans or more", some) for number, some in larger.items() if some),
    ]
    regret = statistics.median(group.regret for group in found)
    most = max(by_source.items(), key=lambda item: len(item[1]))
    held = "holds" if regret <= GOAL else "does not hold"
    headings = ("source", "groups", "plans", "regret, median", "p90", "largest", "drawn at random", "tau, median")
    each = [
        (
            group.source,
            group.name,
            str(len(group.runs)),
            percent(group.regret),
            percent(group.of_a_draw),
            f"{group.tau:+.2f}",
        )
        for group in sorted(found, key=lambda group: -group.regret)
    ]
    return "\n".join(
        (
            "# Choosing a plan: predicted beside measured",
            "",
            f"`validation/choices.py {' '.join(files)}`, {datetime.date.today()}, on `{predictions.name}`.",
            "A group is a published sweep over plans of one model on one machine with one global batch.",
            "Regret is how much slower, as measured, the plan is that presim ranks first than the fastest one.",
            "",
            f"The goal of at most {GOAL:.0%} in the median {held}: {percent(regret)}.",
            f"presim ranks the fastest plan first in {sum(not one.regret for one in found)} of {len(found)} groups.",
            f"{most[0]} has {len(most[1])} of them.",
            "",
            markdown(headings, rows),
            "Groups of two plans are half decided by chance; the column of draws and the last row show it.",
            "",
            "## Each group",
            "",
            markdown(("source", "group", "plans", "regret", "drawn at random", "tau"), each),
        )
    )


def line(name: str, some: Sequence[Group]) -> tuple[str, ...]:
    """A row of the table."""
    regrets = sorted(group.regret for group in some)
    return (
        name,
        str(len(some)),
        str(sum(len(group.runs) for group in some)),
        percent(statistics.median(regrets)),
        percent(regrets[int(0.9 * (len(regrets) - 1) + 0.5)]),
        percent(regrets[-1]),
        percent(statistics.median(group.of_a_draw for group in some)),
        f"{statistics.median(group.tau for group in some):+.2f}",
    )


def percent(share: float) -> str:
    """A share.

    >>> percent(0.123)
    '12.3%'
    """
    return f"{share:.1%}"


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="CASES.csv", help="published runs")
    parser.add_argument("--predictions", type=Path, default=RESULTS / "predictions.csv", metavar="FILE")
    parser.add_argument("--out", type=Path, default=RESULTS / "choices.md", metavar="FILE")
    arguments = parser.parse_args()
    check_writable(str(arguments.out))
    cases = [row for path in arguments.cases for row in read_table(Path(path), ("id", "source"), "a case may have")]
    columns = ("id", "step_time_s", "predicted_step_time_s")
    predicted = {row["id"]: row for row in read_table(arguments.predictions, columns, "a prediction has")}
    found = groups(cases, predicted)
    if not found:
        raise InputError(
            f"no two of {len(cases)} cases differ only in their plan and are predicted in {arguments.predictions}; "
            "name a table with a sweep over plans"
        )
    write_file(
        arguments.out, page(found, arguments.predictions, [Path(path).name for path in arguments.cases]).encode()
    )


if __name__ == "__main__":
    with sentences():
        main()
