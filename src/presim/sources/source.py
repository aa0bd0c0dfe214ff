"""Interface of trace sources.

A source delivers a `presim.evaluation.job.Job`: traces, the ranks that each represents, and provenance. Functions of the
entry-point group ``presim.sources`` open files; programs and plans are sources, too (`presim.sources.programs`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from presim.errors import InputError
from presim.evaluation.job import Job
from presim.evaluation.options import ClusterOptions

GROUP = "presim.sources"


class Source(Protocol):
    """Delivers one job; implementations pass `presim.sources.conformance`."""

    @property
    def name(self) -> str:
        """In messages."""
        ...

    def job(self) -> Job:
        """Deliver the job; the same input gives the same job.

        Raises:
            InputError: the input cannot be used.
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(ClusterOptions):
    """The user's options for files; cluster options describe the hardware that the files were recorded on."""

    step: int | None = None  # step number of a profile; None: all consecutive steps
    # ranks without a file: refuse, or assume that they behave like the others
    missing: Literal["refuse", "same"] = "refuse"


Opener: TypeAlias = Callable[[Sequence[Path], Request], Source | None]  # None: the files have another format


def open_files(paths: Sequence[Path], request: Request, kind: str | None = None) -> Source:
    """Find the source that reads these files: plug-ins first, by name, then presim's own.

    ``kind``: restrict to one entry point or built-in source.

    Raises:
        InputError: a file is missing, or no source reads files like these.
    """
    from presim import plugins

    openers: dict[str, Opener] = {**plugins.factories(GROUP), **_built_in()}
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist; give the files of a recorded run, one per rank")
    if kind is not None and kind not in openers:
        raise InputError(f"no source is called {kind!r}; use one of {', '.join(openers)}")
    for name, opener in openers.items():
        if kind in (None, name) and (source := opener(paths, request)) is not None:
            return source
    named = ", ".join(map(str, paths[:3])) + (", …" if len(paths) > 3 else "")
    raise InputError(f"no source reads {named}; presim reads {', '.join(openers)}: see docs/guide/import.md")


def _built_in() -> dict[str, Opener]:
    from presim.sources import chakra, saved
    from presim.sources.kineto import source as kineto

    return {"saved": saved.open_saved, "chakra": chakra.open_chakra, "kineto": kineto.open_kineto}
