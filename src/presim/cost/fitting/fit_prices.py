"""The work of ``presim fit``: read, check, fit, write, and report the outcome."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from presim.cost.fitting.fit_corrections import fit_class
from presim.cost.fitting.fit_samples import by_class
from presim.cost.fitting.split import least_rows
from presim.cost.learned import learned_model_file
from presim.cost.learned.learned_model_file import LearnedModel, MeasurementSource
from presim.cost.measured.importers.find import commit, digest, located, reader_of
from presim.cost.measured.measured_rows import Intake, Measurement
from presim.errors import InputError
from presim.system.files import check_folder, make_folder
from presim.system.interrupts import caught

_BOUND_ALIKE = (
    "grouped-gemm",
    "attention-forward",
    "attention-backward",
)  # measured by a machine that is also slow in products


@dataclasses.dataclass(frozen=True)
class FittedModels:
    """Models and sources of a fit."""

    models: tuple[LearnedModel, ...]
    refused: tuple[str, ...]  # classes with too few rows, as text
    sources: tuple[MeasurementSource, ...]
    unfitted: tuple[str, ...] = ()  # classes that an interrupt left, as text


def gather(
    folders: Sequence[Path], limit: int, say: Callable[[str], None]
) -> tuple[list[Measurement], list[MeasurementSource]]:
    """All possible rows, and the number of rejected rows of each dataset.

    Raises:
        InputError: a folder is none of the known datasets.
    """
    rows: list[Measurement] = []
    sources: list[MeasurementSource] = []
    for folder in map(located, folders):
        name, reader = reader_of(folder)
        say(f"reading {folder}")
        intake = Intake().take(reader.read(folder, limit))
        prefixes = sorted({row.source.split("/")[0] for row in intake.accepted}) or [name]
        rejected = dict(sorted(intake.rejected.items()))
        source = MeasurementSource(
            name=prefixes[0], commit=commit(folder), sha256=digest(folder, reader.files(folder)),
            rows=len(intake.accepted), rejected=rejected,
        )  # fmt: skip
        sources.append(source)
        rows += intake.accepted
    return rows, sources


def fit(
    folders: Sequence[Path],
    out: Path,
    limit: int,
    say: Callable[[str], None] = lambda text: None,
    *,
    keeps_finished: bool = False,
) -> FittedModels:
    """Fit every class of work and GPU with enough rows, and write one file for each.

    ``keeps_finished``: an interrupt gives the classes that are fitted by then; each is what a whole call writes.

    Raises:
        InputError: no class has enough rows, a folder is unknown, or LightGBM is missing.
    """
    check_folder(out)
    rows, sources = gather(folders, limit, say)
    classes = dict(sorted(by_class(rows).items(), key=_products_first))
    refused = [
        f"{kind} on {gpu}: {len(members)} rows, at least {least_rows(kind)} are needed"
        for (kind, gpu), members in classes.items()
        if len(members) < least_rows(kind)
    ]
    fitted = {name: members for name, members in classes.items() if len(members) >= least_rows(name[0])}
    models: list[LearnedModel] = []
    with caught(keeps_finished) as stop:
        models.extend(_models(fitted, sources, say))  # an interrupt keeps those before it
    stop.unless(models)
    if not models:
        why = "; ".join(refused) or "no row of a class that can be corrected"
        raise InputError(f"too little to fit: {why}{_left_out(sources)}")
    make_folder(out)
    for model in models:
        learned_model_file.write(model, out / f"{model.kind}.{model.gpu}.json")
    unfitted = tuple(f"{kind} on {gpu}" for kind, gpu in [*fitted][len(models) :])
    return FittedModels(tuple(models), tuple(refused), tuple(sources), unfitted)


def _models(
    classes: Mapping[tuple[str, str], Sequence[Measurement]],
    sources: Sequence[MeasurementSource],
    say: Callable[[str], None],
) -> Iterator[LearnedModel]:
    """The models of classes of work and GPUs, products first."""
    machines: dict[str, dict[str, float]] = {}
    for (kind, gpu), members in classes.items():
        say(f"fitting {kind} on {gpu} to {len(members)} rows")
        model, levels = fit_class(kind, gpu, members, sources, machines.get(gpu) if kind in _BOUND_ALIKE else None)
        if kind == "gemm-half":
            machines[gpu] = levels
        yield model


def _left_out(sources: Sequence[MeasurementSource]) -> str:
    """The number of rejected rows and the reasons, as the end of an error message."""
    reasons = Counter[str]()
    for source in sources:
        reasons.update(source.rejected)
    counts = ", ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
    return f"; of {sum(reasons.values())} rows left out: {counts}" if counts else ""


def _products_first(entry: tuple[tuple[str, str], object]) -> tuple[bool, str, str]:
    """Sort half-precision products first: classes without a reference take a source's level from them."""
    (kind, gpu), _ = entry
    return kind != "gemm-half", kind, gpu


def fit_figures(outcome: FittedModels) -> dict[str, Any]:
    """Errors on held-out shapes of every model, the sources, and what was not fitted; shares of 1."""
    models = [
        {"kind": model.kind, "gpu": model.gpu, **msgspec.to_builtins(part)}
        for model in outcome.models
        for part in model.held_out
    ]
    refused, unfitted = list(outcome.refused), list(outcome.unfitted)
    return {"models": models, "sources": outcome.sources, "refused": refused, "unfitted": unfitted}


def describe_fit(outcome: FittedModels) -> list[str]:
    """The outcome of a fit, line by line."""
    lines = [f"partial: not fitted are {', '.join(outcome.unfitted)}"] if outcome.unfitted else []
    lines += [f"{'class':20} {'GPU':16} {'held out':>8} {'error':>7} {'formula':>8} {'in interval':>12}"]
    for model in outcome.models:
        for part in model.held_out[:1]:
            figures = f"{part.points:8} {part.mape:7.1%} {part.analytic_mape:8.1%} {part.within:12.0%}"
            lines.append(f"{model.kind:20} {model.gpu:16} {figures}")
    for source in outcome.sources:
        lines.append(f"{source.name} {source.commit}: {source.rows} rows")
        lines += [f"  rejected {count}: {reason}" for reason, count in source.rejected.items()]
    return lines + [f"no model for {reason}" for reason in outcome.refused]
