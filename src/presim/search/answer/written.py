"""Files for the chosen point: its plan with the command that composes it, or the launch command with its values."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.files import check_folder, make_folder, write_file
from presim.search.knobs import CLUSTER, plan_of
from presim.search.request import Request
from presim.search.study import Answer
from presim.search.trials.evaluator import filled, plan
from presim.search.trials.trial import Point, Value, said

if TYPE_CHECKING:
    from presim.launch.write_files import LaunchFiles

PLAN, LAUNCH, COMPOSE = "plan.toml", "launch.sh", "compose.sh"


def check(folder: str) -> None:
    """Raise before the search what writing would raise after it."""
    check_folder(Path(folder))


def write(request: Request, answer: Answer, folder: str) -> list[Path]:
    """Write the files of the best point; returns them.

    Raises:
        InputError: there is no best point.
    """
    point = answer.best_point
    if point is None:
        raise InputError("no point is feasible, so that there is nothing to --write; see why above")
    place = Path(folder)
    make_folder(place)
    cluster = {name: point.get(name, request.options.get(name)) for name in CLUSTER}
    options = [f"--{name.replace('_', '-')} {said(value)}" for name, value in cluster.items() if value is not None]
    if command := _own(request):
        files = {LAUNCH: f"#!/bin/sh\n{shlex.join(filled(command, point, request.words))}\n"}
    else:
        plan(point)  # it reads back
        files = {
            PLAN: "".join(f"{name} = {_toml(value)}\n" for name, value in sorted(plan_of(point).items())),
            COMPOSE: f"#!/bin/sh\npresim compose {shlex.quote(request.subject)} {' '.join(options)} "
            f"--plan {shlex.quote(str(place / PLAN))}\n",
        }
    for name, text in files.items():
        write_file(place / name, text.encode())
    return [place / name for name in files]


def _own(request: Request) -> Sequence[str]:
    """The command whose knobs are searched, whether each point is captured or the best only; none: knobs are plans'."""
    return request.command or (request.confirm_command if request.meant else ())


def launch(request: Request, point: Point, folder: str) -> LaunchFiles | None:
    """Write the files that start a plan on real frameworks; None for a command, which is its own launch command.

    Raises:
        InputError: the cluster cannot be, or the folder not be written.
    """
    from presim.launch.write_files import write_for_model

    if _own(request):
        return None
    options = {name: point.get(name, request.options.get(name)) for name in (*CLUSTER, "cluster")}
    return write_for_model(request.subject, plan(point), options, Path(folder))


def _toml(value: Value) -> str:
    return said(value) if not isinstance(value, str) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
