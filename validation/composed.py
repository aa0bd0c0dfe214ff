"""Compares composed jobs with captured ones: products, attention and collectives as multisets, step time, peak memory.

    python validation/composed.py FOLDER [--only WORD] [--captured]

Captures the jobs of `composed_cases.py` into FOLDER, composes the same jobs with `presim compose --like`, and writes
`results/composed-vs-captured.md`. Jobs that are in FOLDER already are not captured again. The file of the same name
with `.json` keeps the rows, so that a part of the jobs can be compared again.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import msgspec

from composed_cases import CASES, WHY, Case, fitted
from presim.cli.script import sentences
from presim.composition.capture_comparison import Agreement
from presim.composition.graph import graph_files
from presim.composition.graph.take import config_file, take
from presim.errors import InputError
from presim.evaluation.options import EvaluationOptions
from presim.system.files import check_folder
from presim.verbs.compose import compose_like

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "validation" / "results" / "composed-vs-captured.md"
ROWS = RESULT.with_suffix(".json")
FIGURES = ("step time", "peak allocated", "peak reserved")


def model_of(case: Case, folder: Path) -> tuple[Path, Path]:
    """The model's config, if it has one, and its graph. Both are created only once."""
    named = json.dumps([case.model, case.changed], sort_keys=True)
    config = folder / f"{re.sub('[^a-z0-9]+', '-', named.lower()).strip('-')}.json"
    if ":" not in case.model and not config.exists():
        known = json.loads((config_file(case.model) or Path()).read_bytes())
        known.pop("presim_source")
        config.write_text(json.dumps({**known, **case.changed}))
    graph = config.with_suffix(".graph")
    if not graph.exists():
        graph_files.save(take(case.model if ":" in case.model else str(config)), graph)
    return config, graph


def folder_of(case: Case, folder: Path) -> Path:
    """The folder of the captured job."""
    return folder / re.sub("[^A-Za-z0-9.]+", "-", f"{case.family} {case.name}")


def capture(case: Case, config: Path, folder: Path) -> Path:
    """The folder of the captured job; captured only once.

    Raises:
        InputError: it cannot be captured.
    """
    kept = folder_of(case, folder)
    if (kept / "job.json").exists():
        return kept
    arguments = [word.replace("{model}", str(config)) for word in case.words.split()]
    cluster = ["--gpu", case.gpu, "--world-size", str(case.gpus)]
    command = [sys.executable, "-m", "presim", "run", "--quiet", *cluster, "--check", "0", "--save", str(kept)]
    ended = subprocess.run([*command, str(ROOT / case.script), *arguments], check=False, capture_output=True, text=True)
    if ended.returncode or not (kept / "job.json").exists():
        raise InputError(f"{case.name} cannot be captured: {(ended.stderr.strip().splitlines() or ['no reason'])[-1]}")
    return kept


def compared(case: Case, folder: Path) -> Agreement:
    """Capture and compose a job.

    Raises:
        InputError: either cannot be.
    """
    config, graph = model_of(case, folder)
    return compose_like(str(graph), capture(case, config, folder), dict(case.said), EvaluationOptions())[1]


class Row(msgspec.Struct, frozen=True):
    """What comparing a job gave, and when."""

    family: str
    name: str
    date: str
    captured_s: float  # step time
    errors: dict[str, float]  # composed over captured - 1, by figure
    differences: tuple[str, ...]  # signatures with different counts
    turns: tuple[str, ...] | None = None  # where ranks' collectives come in another order first; None: not compared

    def line(self, is_fitted: bool) -> str:
        """A line of the table."""
        figures = [f"{self.errors[name]:+.2%}" for name in FIGURES]
        work = f"{len(self.differences)} differ" if self.differences else "equal"
        order = "" if self.turns is None else "another" if self.turns else "same"
        name = f"{self.name} *" if is_fitted else self.name
        return f"| {' | '.join([name, work, order, f'{self.captured_s:.4f} s', *figures, self.date])} |"


def row(case: Case, agreement: Agreement) -> Row:
    """The row of a job compared today."""
    captured = next(one.captured for one in agreement.figures if one.name == "step time")
    errors = {name: agreement.error(name) for name in FIGURES}
    differences = [
        f"rank {one.rank}: {one.signature}: {one.captured} captured, {one.composed} composed"
        for one in agreement.differences
    ]
    turns = [
        f"rank {one.rank}, number {one.index + 1}: {one.captured} captured, {one.composed} composed"
        for one in agreement.turns
    ]
    return Row(case.family, case.name, f"{datetime.date.today()}", captured, errors, tuple(differences), tuple(turns))


def known() -> dict[tuple[str, str], Row]:
    """Rows of the last runs."""
    rows = msgspec.json.decode(ROWS.read_bytes(), type=list[Row]) if ROWS.exists() else []
    return {(one.family, one.name): one for one in rows}


def main() -> None:
    """Compare jobs, and write the table with their rows and the others' last ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="jobs whose family or name has this; the others keep their rows")
    parser.add_argument("--captured", action="store_true", help="jobs that are in FOLDER already")
    options = parser.parse_args()
    check_folder(options.folder)
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    rows, missed = known(), list[str]()
    for case in CASES:
        is_there = (folder_of(case, options.folder) / "job.json").exists()
        if options.only not in f"{case.family} {case.name}" or (options.captured and not is_there):
            continue
        try:
            found = row(case, compared(case, options.folder))
        except InputError as error:
            missed.append(f"- {case.family}, {case.name}: {error}")
            print(missed[-1], flush=True)
            continue
        rows[case.family, case.name] = found
        print(found.line(fitted(case)), *found.differences, sep="\n", flush=True)
    kept = [(case, rows[case.family, case.name]) for case in CASES if (case.family, case.name) in rows]
    ROWS.write_bytes(msgspec.json.format(msgspec.json.encode([one for _, one in kept]), indent=1) + b"\n")
    RESULT.write_text(table(kept, missed))


def table(found: list[tuple[Case, Row]], missed: list[str]) -> str:
    """The page."""
    equal = sum(not one.differences for _, one in found)
    lines = [
        "# Composed beside captured",
        "",
        f"`presim compose --like` of {len(found)} captured jobs, written by `validation/composed.py`, on 2 CPU cores "
        "shared with other work. Times of captures were not measured. Errors are composed over captured. `equal`: "
        "products, attention and collectives of the last step are equal as multisets. Order: whether collectives are "
        "launched one after another in the same order, those aside whose counts differ. `*`: "
        "`validation/composed_hosts.py` took launch times from this capture. The last column: when.",
        "",
    ]
    for name in FIGURES:
        errors = [abs(one.errors[name]) for _, one in found]
        over = sum(error > 0.1 for error in errors)
        said = f"- {name}: median error {statistics.median(errors):.2%}, largest {max(errors):.2%}"
        lines.append(f"{said}, {over} of {len(errors)} beyond 10 %.")
    lines += [f"- Work is equal in {equal} of {len(found)} jobs.", ""]
    for family, group in itertools.groupby(found, lambda one: one[0].family):
        heads = "job | work | order | step time, captured | step time | peak allocated | peak reserved | made"
        lines += [f"## {family}", "", f"| {heads} |", "|---|---|---|---|---|---|---|---|"]
        lines += [*(one.line(fitted(case)) for case, one in group), ""]
        lines += [WHY[family], ""] if family in WHY else []
    differing = [f"- {one.family}, {one.name}, {text}" for _, one in found for text in one.differences]
    lines += ["## Work that differs", "", *(differing or ["None."])]
    turns = [f"- {one.family}, {one.name}, {text}" for _, one in found for text in one.turns or ()]
    lines += ["", "## First collective in another order", "", *(turns or ["None."])]
    if missed:
        lines += ["", "## Not compared", "", *missed]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    with sentences():
        main()
