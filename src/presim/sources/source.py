"""The interface of trace sources: what is asked of one, and what it delivers.

A source delivers a `presim.job.Job`: traces, who stands for whom, and where both come from. Files are opened by
functions of the entry-point group ``presim.sources``; programs and plans are sources too (`presim.sources.programs`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from presim.errors import InputError
from presim.job import Job
from presim.options import ClusterOptions

GROUP = "presim.sources"


class Source(Protocol):
    """Delivers one job; implementations pass `presim.sources.conformance`."""

    name: str  # in messages and in the notes of results

    def job(self) -> Job:
        """The job. Same input, same job.

        Raises:
            InputError: the input cannot be used.
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(ClusterOptions):
    """What the user says about files beside naming them; the cluster is the one that they were recorded on."""

    step: int | None = None  # of a profile: the number of the step; None: all that follow each other
    missing: Literal["refuse", "same"] = "refuse"  # ranks without a file: refuse, or take them to do as the others


Opener: TypeAlias = Callable[[Sequence[Path], Request], Source | None]  # None: the files are not of its kind


def open_files(paths: Sequence[Path], request: Request, kind: str | None = None) -> Source:
    """The source that reads these files: plug-ins are asked first, by name, then presim's own.

    ``kind``: the name of an entry point or of presim's own; only that one is asked.

    Raises:
        InputError: a file is missing, or no source reads files like these.
    """
    from presim import plugins

    known: dict[str, Opener] = {**plugins.factories(GROUP), **_built_in()}
    for path in paths:
        if not path.exists():
            raise InputError(f"there is no {path}; name the files of a recorded run, one for each rank")
    if kind is not None and kind not in known:
        raise InputError(f"no source is called {kind!r}; there are {', '.join(known)}")
    for name, opener in known.items():
        if kind in (None, name) and (found := opener(paths, request)) is not None:
            return found
    named = ", ".join(map(str, paths[:3])) + (", …" if len(paths) > 3 else "")
    raise InputError(f"no source reads {named}; presim reads {', '.join(known)}: see docs/guide/import.md")


def _built_in() -> dict[str, Opener]:
    from presim.sources import chakra, saved
    from presim.sources.kineto import source as kineto

    return {"saved": saved.open_saved, "chakra": chakra.open_chakra, "kineto": kineto.open_kineto}
