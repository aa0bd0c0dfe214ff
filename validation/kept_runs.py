"""Published runs with stored captures, for studies that price and simulate them in several ways."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from presim.errors import InputError, PresimError
from presim.studies.validation.cases import Case, read_cases
from presim.trace import job_store
from presim.trace.schema import Trace
from presim_study.captures import Captures
from presim_study.plan import Plan
from presim_study.planners import plan
from presim_study.runs import as_published
from presim_study.tables import COMPUTED

RECIPES = Path(__file__).parent / "recipes"


@dataclasses.dataclass(frozen=True)
class KeptRun:
    """One published step time and the capture of its recipe."""

    source: str
    measured_s: float
    plan: Plan
    traces: Sequence[Trace]


def options(parser: argparse.ArgumentParser) -> None:
    """The command-line arguments that select runs."""
    parser.add_argument("tables", nargs="+", metavar="CASES.csv", type=Path, help="published runs; others are left out")
    parser.add_argument(
        "--captures", action="append", required=True, metavar="DIR", type=Path, help="as presim validate keeps them"
    )
    parser.add_argument("--recipes", default=RECIPES, metavar="DIR", type=Path, help="with which they were captured")
    parser.add_argument(
        "--most", type=int, default=0, metavar="N", help="of each source at most N, spread over its rows; 0: all"
    )


def kept_runs(chosen: argparse.Namespace) -> Iterator[KeptRun]:
    """The runs that somebody measured and whose captures ended well, source by source, in the order of the tables.

    Raises:
        InputError: a table or a folder is not there, or no run has its captures.
    """
    if not chosen.recipes.is_dir():
        raise InputError(f"there is no folder {chosen.recipes} of recipes; name the checkout's validation/recipes")
    _check_folders(chosen.captures)
    folders = [Captures(chosen.recipes, folder) for folder in chosen.captures]
    found: dict[str, list[tuple[Case, Plan, Captures]]] = {}
    cases = [case for table in chosen.tables for case in read_cases(table)]
    for case in cases:
        if not case.number("step_time_s") or COMPUTED in case.text("source"):
            continue
        try:
            planned = plan(case)
        except PresimError:
            continue
        holder = next((folder for folder in folders if folder.has(planned)), None)
        if holder is not None:
            found.setdefault(_source(case), []).append((case, planned, holder))
    if not found:
        raise InputError(
            f"of {len(cases)} cases none has both a measured step_time_s and its captures in "
            f"{' or '.join(map(str, chosen.captures))}; presim validate CASES.csv --captures DIR makes them"
        )
    for source, runs in sorted(found.items()):
        for case, planned, holder in _spread(runs, chosen.most):
            traces = [as_published(planned, trace) for trace in holder.traces(planned)]
            if all(trace.manifest.exit in ("ok", "stopped") for trace in traces):
                yield KeptRun(source, case.number("step_time_s"), planned, traces)


def jobs(folders: Sequence[Path]) -> list[Path]:
    """The folders of kept captures in these folders, by name.

    Raises:
        InputError: a folder is not there, or there are no captures at all.
    """
    _check_folders(folders)
    found = [job.parent for folder in folders for job in folder.glob(f"*/{job_store.JOB_FILE}")]
    if not found:
        raise InputError(
            f"there are no captures in {' or '.join(map(str, folders))}; "
            "presim validate CASES.csv --captures DIR makes them"
        )
    return sorted(found, key=lambda job: job.name)


def _check_folders(folders: Sequence[Path]) -> None:
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder} of captures")


def _source(case: Case) -> str:
    return case.text("source").removeprefix("github:").split(":")[0].split(",")[0]


def _spread(runs: Sequence[tuple[Case, Plan, Captures]], most: int) -> Sequence[tuple[Case, Plan, Captures]]:
    """At most ``most`` items, evenly spaced."""
    if not 0 < most < len(runs):
        return runs
    return [runs[place * len(runs) // most] for place in range(most)]
