"""The jobs of a search's points in a folder that its processes share, and the lines that have no law."""

from __future__ import annotations

import hashlib
from pathlib import Path

from presim.planner.trials.trial import Point, key
from presim.system.files import read_text, write_file
from presim.trace import job_store

_REFUSALS = 3  # of a line; then its other points are captured


class CapturedPoints:
    """Saved jobs by point."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def job_folder(self, point: Point, knob: str = "") -> Path:
        """The folder of a point's job; ``knob``: along which it was extended, empty if it was captured."""
        return self._folder / _digest(f"{knob} {key(point)}")

    def find(self, point: Point, knob: str, other_knobs: list[str]) -> Path | None:
        """The job of a point to extend along a knob: captured, or extended along another knob; None: there is none."""
        for origin in ("", *(other for other in other_knobs if other != knob)):
            folder = self.job_folder(point, origin)
            if (folder / job_store.JOB_FILE).exists():
                return folder
        return None

    def is_stopped(self, point: Point, knob: str) -> bool:
        """Whether nothing is extended along the line of a point."""
        return len(self._refusals(point, knob)) >= _REFUSALS

    def refuse(self, point: Point, knob: str, reason: str, *, is_final: bool) -> None:
        """Count a point that its line does not answer for; ``is_final``: neither will it for further ones."""
        for number in range(_REFUSALS if is_final else 1):
            name = f"{self._line(point, knob)}-{_digest(key(point))}-{number}.refused"
            write_file(str(self._folder / name), f"{knob}: {reason}".encode())

    def reasons(self) -> list[str]:
        """Why lines had no law, without duplicates."""
        return sorted({read_text(path, "remove it") for path in self._folder.glob("*.refused")})

    def _refusals(self, point: Point, knob: str) -> list[Path]:
        return list(self._folder.glob(f"{self._line(point, knob)}-*.refused"))

    @staticmethod
    def _line(point: Point, knob: str) -> str:
        return _digest(f"line {knob} {key({name: value for name, value in point.items() if name != knob})}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
