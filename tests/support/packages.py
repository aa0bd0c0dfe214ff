"""Installed packages that register plug-ins."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, entry_points: str) -> None:
    """What pip leaves of a package."""
    info = folder / "example-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1\n")
    (info / "entry_points.txt").write_text(entry_points)
