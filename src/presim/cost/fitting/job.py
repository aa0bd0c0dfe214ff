"""What ``presim fit`` does: read, check, fit, write, and say what came of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from presim.cost.fitting.fit import LEAST_ROWS, by_class, fit_class
from presim.cost.learned import schema
from presim.cost.learned.schema import Model, Source
from presim.cost.measured.importers.find import commit, digest, reader_of
from presim.cost.measured.rows import Intake, Measurement
from presim.errors import InputError


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a fit made, and what it left."""

    models: tuple[Model, ...]
    refused: tuple[str, ...]  # classes with too few rows, in words
    sources: tuple[Source, ...]


def gather(folders: Sequence[Path], limit: int, say: Callable[[str], None]) -> tuple[list[Measurement], list[Source]]:
    """All rows that can be true, and for each dataset how many could not.

    Raises:
        InputError: a folder is none of the known datasets.
    """
    rows: list[Measurement] = []
    sources: list[Source] = []
    for folder in folders:
        name, reader = reader_of(folder)
        say(f"reading {folder}")
        intake = Intake().take(reader.read(folder, limit))
        prefixes = sorted({row.source.split("/")[0] for row in intake.accepted}) or [name]
        rejected = dict(sorted(intake.rejected.items()))
        made = Source(
            name=prefixes[0], commit=commit(folder), sha256=digest(folder, reader.files(folder)),
            rows=len(intake.accepted), rejected=rejected,
        )  # fmt: skip
        sources.append(made)
        rows += intake.accepted
    return rows, sources


def fit(folders: Sequence[Path], out: Path, limit: int, say: Callable[[str], None] = lambda text: None) -> Outcome:
    """Fit every class of work and GPU that the folders measure well enough, and write one file for each.

    Raises:
        InputError: no class has enough rows, a folder is unknown, or LightGBM is missing.
    """
    rows, sources = gather(folders, limit, say)
    models, refused = [], []
    for (kind, gpu), members in by_class(rows).items():
        if len(members) < LEAST_ROWS:
            refused.append(f"{kind} on {gpu}: {len(members)} rows, at least {LEAST_ROWS} are needed")
            continue
        say(f"fitting {kind} on {gpu} to {len(members)} rows")
        models.append(fit_class(kind, gpu, members, sources))
    if not models:
        raise InputError(f"too little to fit: {'; '.join(refused) or 'no row of a class that can be corrected'}")
    out.mkdir(parents=True, exist_ok=True)
    for model in models:
        schema.write(model, out / f"{model.kind}.{model.gpu}.json")
    return Outcome(tuple(models), tuple(refused), tuple(sources))
