"""The best plan of each cluster, run on every other (`presim search --matrix`): one table, one picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec

from presim.errors import InputError
from presim.evaluation.options import ClusterOptions, RunOptions
from presim.hardware import catalogue
from presim.planner.knobs import short
from presim.planner.objectives import OBJECTIVES, Objective
from presim.planner.of_model import request_for_model
from presim.planner.run_search import run
from presim.planner.search_options import SearchOptions
from presim.planner.study import Answer
from presim.planner.trials.trial import Point, Value, format_value
from presim.system.files.field_bounds import Count, Real, Version
from presim.system.files.field_docs import doc

Progress = Callable[[str], None]
_NO_CLUSTER = {field.name: None for field in dataclasses.fields(ClusterOptions)}


class ClusterRun(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster's best plan on a cluster."""

    plan_of: Annotated[Count, doc("Index of the cluster whose best plan it is.")]
    on: Annotated[Count, doc("Index of the cluster that it runs on.")]
    step_time_s: Annotated[Real | None, doc("Seconds of a step; null where it does not run or does not fit.")] = None
    value: Annotated[Real | None, doc("The objective.")] = None
    loss: Annotated[Real | None, doc("How much worse than that cluster's own best plan, as a share of that.")] = None
    words: Annotated[str, doc("Why it does not run.")] = ""


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `presim search --matrix`."""

    schema_version: Annotated[Version, doc("Version of this schema.")] = 1
    subject: Annotated[str, doc("The model.")]
    objective: Annotated[str, doc("What was optimised.")]
    clusters: Annotated[list[str], doc("The clusters, as they were named.")]
    plans: Annotated[list[Point], doc("The best plan of each cluster; empty where none fits.")]
    runs: Annotated[list[ClusterRun], doc("Every plan on every cluster, plan by plan.")]
    notes: Annotated[list[str], doc("Notes on the searches, as sentences.")] = []
    kind: Annotated[str, doc("Kind of the result.")] = "search-matrix"

    def cell(self, plan_of: int, on: int) -> ClusterRun:
        """A plan on a cluster."""
        return self.runs[plan_of * len(self.clusters) + on]


def clusters_of(texts: Sequence[str]) -> dict[str, ClusterOptions]:
    """Clusters by name from ``GPU[:NODES]`` and names of TOML files, separated by commas.

    Raises:
        InputError: a GPU is unknown, a number of nodes is none, or there are fewer than two clusters.
    """
    clusters: dict[str, ClusterOptions] = {}
    for name in (word.strip() for text in texts for word in text.split(",") if word.strip()):
        if name in clusters:
            raise InputError(f"--matrix names {name} twice; leave one of them out")
        if name.endswith(".toml"):
            clusters[name] = ClusterOptions(cluster=name)
            continue
        gpu, colon, nodes = name.partition(":")
        if colon and not nodes.isdecimal():
            raise InputError(f"--matrix takes GPU:NODES, such as h100-sxm:16, or a cluster file; got {name!r}")
        clusters[name] = ClusterOptions(gpu=catalogue.gpu(gpu).id, nodes=int(nodes) if colon else 1)
    if len(clusters) < 2:
        raise InputError("--matrix compares clusters: name two or more, e.g. --matrix h100-sxm:16,b200:8")
    return clusters


def search_matrix(
    model: str,
    settings: SearchOptions,
    options: RunOptions,
    fixed: Mapping[str, Value],
    clusters: Mapping[str, ClusterOptions],
    progress: Progress = lambda text: None,
) -> Matrix:
    """Search a model's best plan on each cluster, and run each of these plans on all clusters.

    Raises:
        InputError: a search cannot be carried out.
    """
    names: list[str] = list(clusters)
    answers: list[Answer] = []
    for name in names:
        progress(f"searching {name}")
        request = request_for_model(model, settings, _on(options, clusters[name]), fixed)
        answers.append(run(request, progress))
    if answer := next((answer for answer in answers if answer.partial), None):
        raise InputError(f"a search over {answer.subject} was ended before it was complete; raise --budget")
    objective = OBJECTIVES[answers[0].objectives[0]]
    plans = [dict(answer.best_point or {}) for answer in answers]
    cells: list[ClusterRun] = []
    for plan_index, plan in enumerate(plans):
        for on, name in enumerate(names):
            progress(f"the plan of {names[plan_index]} on {name}")
            answer = answers[on] if on == plan_index else None
            cells.append(_run(model, settings, _on(options, clusters[name]), plan, (plan_index, on), answer, objective))
    with_losses = [
        msgspec.structs.replace(cell, loss=_loss(cell, cells[cell.on * len(names) + cell.on], objective))
        for cell in cells
    ]
    notes = list(dict.fromkeys(note for answer in answers for note in answer.notes))
    return Matrix(subject=model, objective=objective.name, clusters=names, plans=plans, runs=with_losses, notes=notes)


def _on(options: RunOptions, cluster: ClusterOptions) -> RunOptions:
    return dataclasses.replace(options, **{**_NO_CLUSTER, **dataclasses.asdict(cluster)})


def _run(
    model: str,
    settings: SearchOptions,
    options: RunOptions,
    plan: Point,
    indices: tuple[int, int],
    answer: Answer | None,
    objective: Objective,
) -> ClusterRun:
    """A plan on a cluster; ``answer``: of the search there, if it is the cluster's own plan."""
    plan_of, on = indices
    if not plan:
        return ClusterRun(plan_of=plan_of, on=on, words="no plan fits the cluster that it would be of")
    if answer is None:
        single = dataclasses.replace(settings, vary=(), prune=("none",), study=None, sampler="exhaustive", trials=None)
        try:
            answer = run(request_for_model(model, single, options, plan))
        except InputError as error:
            return ClusterRun(plan_of=plan_of, on=on, words=str(error))
    trial = answer.trial(answer.best[0]) if answer.best else answer.trials[0]
    if not answer.best or trial.figures is None:
        words = trial.words or "; ".join(answer.notes)
        return ClusterRun(plan_of=plan_of, on=on, words="does not fit" if trial.figures is not None else words)
    value = objective.of(trial.figures, answer.work)
    return ClusterRun(plan_of=plan_of, on=on, step_time_s=trial.figures.step_time_s, value=value)


def _loss(cell: ClusterRun, best: ClusterRun, objective: Objective) -> float | None:
    if cell.value is None or best.value is None or not best.value:
        return None
    return 1 - cell.value / best.value if objective.larger else cell.value / best.value - 1


def plan_words(plan: Point) -> str:
    """A plan in short, without what is off or one."""
    return " ".join(
        f"{short(name)}={format_value(value)}" for name, value in plan.items() if value not in (1, 0, False, "none")
    )


def encode(matrix: Matrix) -> bytes:
    """The matrix as JSON."""
    return msgspec.json.format(msgspec.json.encode(matrix, order="sorted"), indent=1) + b"\n"
