"""Prints and writes a result that an interrupt ended early, as `presim report` shows its file later."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from presim.studies.saved_results.kinds import KINDS
from presim.studies.saved_results.read_result import INTERRUPTED, SavedResult


def write(kind_name: str, content: Any) -> None:
    """Print the report of a partial result; ``kind_name`` is one of `presim.studies.saved_results.kinds`."""
    from presim.studies.saved_results import show_result

    show_result.write(_saved(kind_name, content))


def write_page(kind_name: str, content: Any, path: str | os.PathLike[str]) -> None:
    """Write a partial result as an HTML page that says so."""
    from presim.studies.saved_results import show_result
    from presim.system.files import write_file

    write_file(path, show_result.page(_saved(kind_name, content, path)).encode())


def _saved(kind_name: str, content: Any, path: str | os.PathLike[str] = "") -> SavedResult:
    kind = next(kind for kind in KINDS if kind.name == kind_name)
    return SavedResult(Path(path), kind, content, INTERRUPTED)
