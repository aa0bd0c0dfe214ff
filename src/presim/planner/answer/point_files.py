"""Write the files of the best point: a plan and its compose command, or the launch command with its values."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.planner.knobs import CLUSTER, plan_of
from presim.planner.search_request import SearchRequest
from presim.planner.study import Answer
from presim.planner.trials.placeholders import fill_placeholders
from presim.planner.trials.point_evaluator import plan
from presim.planner.trials.trial import Point, Value, format_value
from presim.system.files import check_folder, make_folder, write_file

if TYPE_CHECKING:
    from presim.composition.launch_files.write_files import LaunchFiles

PLAN, LAUNCH, COMPOSE = "plan.toml", "launch.sh", "compose.sh"


def check(folder: str) -> None:
    """Raise before the search if ``folder`` cannot be written after it."""
    check_folder(Path(folder))


def write(request: SearchRequest, answer: Answer, folder: str) -> list[Path]:
    """Write the files of the best point; returns them.

    Raises:
        InputError: there is no best point.
    """
    point = answer.best_point
    if point is None:
        raise InputError("no point is feasible, so there is nothing to --write; the reasons are printed above")
    out_folder = Path(folder)
    make_folder(out_folder)
    cluster = {name: point.get(name, request.options.get(name)) for name in CLUSTER}
    options = [
        f"--{name.replace('_', '-')} {format_value(value)}" for name, value in cluster.items() if value is not None
    ]
    if command := _user_command(request):
        files = {LAUNCH: f"#!/bin/sh\n{shlex.join(fill_placeholders(command, point, request.words))}\n"}
    else:
        plan(point)  # check that the plan reads back
        files = {
            PLAN: "".join(f"{name} = {_toml(value)}\n" for name, value in sorted(plan_of(point).items())),
            COMPOSE: f"#!/bin/sh\npresim compose {shlex.quote(request.subject)} {' '.join(options)} "
            f"--plan {shlex.quote(str(out_folder / PLAN))}\n",
        }
    for name, text in files.items():
        write_file(out_folder / name, text.encode())
    return [out_folder / name for name in files]


def _user_command(request: SearchRequest) -> Sequence[str]:
    """The user's command whose knobs are searched; empty if the knobs are fields of plans."""
    return request.command or (request.confirm_command if request.plan_fields else ())


def launch(request: SearchRequest, point: Point, folder: str) -> LaunchFiles | None:
    """Write launch files for real frameworks; None for a user's command, which needs none.

    Raises:
        InputError: the cluster is invalid, or the folder cannot be written.
    """
    from presim.composition.launch_files.write_files import write_for_model

    if _user_command(request):
        return None
    options = {name: point.get(name, request.options.get(name)) for name in (*CLUSTER, "cluster")}
    return write_for_model(request.subject, plan(point), options, Path(folder))


def _toml(value: Value | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return (
        format_value(value)
        if not isinstance(value, str)
        else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
