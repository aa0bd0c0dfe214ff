"""Files that a test makes."""

from __future__ import annotations

from pathlib import Path


def write_lines(path: Path, *lines: str) -> None:
    """A text file of these lines, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
