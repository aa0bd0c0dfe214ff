"""Failure rates of trainings from published reports."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from presim.errors import InputError

_DATA = Path(__file__).with_name("reliability.toml")


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unexpected interruptions that were counted on some cluster."""

    name: str
    text: str
    source: str
    interruptions: float
    gpu_hours: float

    @property
    def per_gpu_hour(self) -> float:
        """Interruptions in an hour of one GPU."""
        return self.interruptions / self.gpu_hours


class Hardware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Share of the interruptions that take a node away until it is repaired."""

    share: float
    source: str


class Reliability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known."""

    report: tuple[Report, ...]
    hardware: Hardware

    def named(self, name: str) -> Report:
        """A report by its name.

        Raises:
            InputError: there is none.
        """
        found = next((report for report in self.report if report.name == name), None)
        if found is None:
            known = ", ".join(report.name for report in self.report)
            raise InputError(f"no report of failures is called {name!r}; there are {known}, or give --mtbf")
        return found

    def spread(self) -> tuple[float, float]:
        """Interruptions per GPU hour, from the most to the least reliable cluster."""
        rates = [report.per_gpu_hour for report in self.report]
        return min(rates), max(rates)


@functools.cache
def known() -> Reliability:
    """The published figures."""
    content: dict[str, Any] = tomllib.loads(_DATA.read_text())
    return msgspec.convert(content, Reliability)
