"""Find the source that reads a recording: those of installed packages, then presim's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from presim.errors import InputError
from presim.sources import chakra, nsys, rocpd, saved
from presim.sources.kineto import profile_source as kineto
from presim.sources.source import GROUP, Source, SourceRequest
from presim.system import plugins

Opener: TypeAlias = Callable[[Sequence[Path], SourceRequest], Source | None]  # None: the files have another format


def open_files(paths: Sequence[Path], request: SourceRequest, kind: str | None = None) -> Source:
    """Find the source that reads these files: plug-ins first, by name, then presim's own.

    ``kind``: restrict to one entry point or built-in source.

    Raises:
        InputError: a file is missing, or no source reads files like these.
    """
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
    return {
        "saved": saved.open_saved,
        "chakra": chakra.open_chakra,
        "nsys": nsys.open_nsys,
        "rocpd": rocpd.open_rocpd,
        "kineto": kineto.open_kineto,
    }
