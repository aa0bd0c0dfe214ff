"""Compares composed jobs with captured ones: products, attention and collectives as multisets, step time, peak memory.

    python validation/composed.py FOLDER [--only WORD]

Captures the jobs of `composed_cases.py` into FOLDER, composes the same jobs with `presim compose --like`, and writes
`results/composed-vs-captured.md`. Jobs that are in FOLDER already are not captured again.
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
from collections.abc import Sequence
from pathlib import Path

from composed_cases import CASES, WHY, Case, fitted
from presim.cli.script import sentences
from presim.compose.compare import Agreement
from presim.errors import InputError
from presim.files import check_folder
from presim.graph import store
from presim.graph.take import config_file, take
from presim.options import EvaluationOptions
from presim.verbs.compose import compose_like

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "validation" / "results" / "composed-vs-captured.md"
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
        store.save(take(case.model if ":" in case.model else str(config)), graph)
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


def row(case: Case, agreement: Agreement) -> str:
    """A line of the table."""
    figures = [f"{agreement.error(name):+.2%}" for name in FIGURES]
    captured = next(one.captured for one in agreement.figures if one.name == "step time")
    work = "equal" if agreement.same_work else f"{len(agreement.differences)} differ"
    return f"| {case.name}{' *' if fitted(case) else ''} | {work} | {captured:.4f} s | {' | '.join(figures)} |"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="jobs whose family or name has this; prints instead of writing")
    parser.add_argument("--differences", action="store_true", help="print the work that differs, too")
    options = parser.parse_args()
    check_folder(options.folder)
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    found: list[tuple[Case, Agreement]] = []
    missed: list[str] = []
    for case in CASES:
        if options.only not in f"{case.family} {case.name}":
            continue
        try:
            found.append((case, compared(case, options.folder)))
            print(row(*found[-1]), flush=True)
        except InputError as error:
            missed.append(f"- {case.family}, {case.name}: {error}")
            print(missed[-1], flush=True)
            continue
        if options.differences:
            print(*differences([found[-1]]), sep="\n", flush=True)
    if not options.only:
        RESULT.write_text(table(found, missed))


def differences(found: Sequence[tuple[Case, Agreement]]) -> list[str]:
    """Signatures with different counts."""
    return [
        f"- {case.family}, {case.name}, rank {one.rank}: {one.signature}: {one.captured} captured, "
        f"{one.composed} composed"
        for case, agreement in found
        for one in agreement.differences
    ]


def table(found: list[tuple[Case, Agreement]], missed: list[str]) -> str:
    """The page."""
    equal = sum(agreement.same_work for _, agreement in found)
    lines = [
        "# Composed beside captured",
        "",
        f"`presim compose --like` of {len(found)} captured jobs, written by `validation/composed.py` on "
        f"{datetime.date.today()}, on 2 CPU cores shared with other work. Times of captures were not measured. Errors "
        "are composed over captured. `equal`: products, attention and collectives of the last step are equal as "
        "multisets of signatures. `*`: `validation/composed_hosts.py` took launch times from this capture.",
        "",
    ]
    for name in FIGURES:
        errors = [abs(agreement.error(name)) for _, agreement in found]
        over = sum(error > 0.1 for error in errors)
        said = f"- {name}: median error {statistics.median(errors):.2%}, largest {max(errors):.2%}"
        lines.append(f"{said}, {over} of {len(errors)} beyond 10 %.")
    lines += [f"- Work is equal in {equal} of {len(found)} jobs.", ""]
    for family, group in itertools.groupby(found, lambda one: one[0].family):
        heads = "job | work | step time, captured | step time | peak allocated | peak reserved"
        lines += [f"## {family}", "", f"| {heads} |", "|---|---|---|---|---|---|"]
        lines += [*(row(case, agreement) for case, agreement in group), ""]
        lines += [WHY[family], ""] if family in WHY else []
    lines += ["## Work that differs", "", *(differences(found) or ["None."])]
    if missed:
        lines += ["", "## Not compared", "", *missed]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    with sentences():
        main()
