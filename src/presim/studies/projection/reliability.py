"""Failure rates of training runs from published reports."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import msgspec

from presim.errors import InputError
from presim.system.files import decode_toml, read_text, to_type
from presim.system.files.field_bounds import PositiveRatio, Share

_DATA = Path(__file__).with_name("reliability.toml")
GpuHours = Annotated[float, msgspec.Meta(ge=1, le=1e12)]


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unexpected interruptions counted on a cluster."""

    name: str
    text: str
    source: str
    interruptions: PositiveRatio
    gpu_hours: GpuHours

    @property
    def per_gpu_hour(self) -> float:
        """Interruptions per GPU hour."""
        return self.interruptions / self.gpu_hours


class Hardware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Share of interruptions that remove a node until it is repaired."""

    share: Share
    source: str


class Reliability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All published figures."""

    report: tuple[Report, ...]
    hardware: Hardware

    def named(self, name: str) -> Report:
        """A report by name.

        Raises:
            InputError: there is no such report.
        """
        report = next((report for report in self.report if report.name == name), None)
        if report is None:
            names = ", ".join(report.name for report in self.report)
            raise InputError(f"no failure report is called {name!r}; use one of {names}, or give --mtbf")
        return report

    def spread(self) -> tuple[float, float]:
        """Lowest and highest published interruptions per GPU hour."""
        rates = [report.per_gpu_hour for report in self.report]
        return min(rates), max(rates)


@functools.cache
def load_reliability() -> Reliability:
    """Load the published figures."""
    content = decode_toml(read_text(_DATA, "install presim again"))
    return to_type(content, Reliability)
