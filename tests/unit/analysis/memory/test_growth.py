"""A note says when memory still grows at the end of a capture."""

from __future__ import annotations

import pytest

from presim.analysis.memory.growth import growth_note, step_peaks
from presim.trace.builder import TraceBuilder, default_manifest

GIB = 1 << 30


@pytest.mark.parametrize(
    ("peaks", "grows"),
    [
        ((5, 9, 13), True),
        ((2, 5, 9, 13), True),
        ((5, 9), False),  # the second step of a training holds optimizer states
        ((5, 9, 9), False),
        ((5, 9, 10), False),  # settles
        ((9, 9, 13), False),  # once
        ((100, 101, 102), False),  # by fragments
        ((), False),
    ],
)
def test_only_steady_growth_is_reported(peaks: tuple[int, ...], grows: bool) -> None:
    """Three steps that each add nearly as much as the one before."""
    assert bool(growth_note([peak * GIB for peak in peaks])) == grows


def test_the_sentence_has_the_peaks_and_the_next_command() -> None:
    (sentence,) = growth_note([5 * GIB, 9 * GIB, 13 * GIB])
    assert "(5.00 GiB, 9.00 GiB, 13.0 GiB)" in sentence
    assert sentence.endswith("capture them with --steps 12.")


def test_peaks_are_of_segments_within_each_step() -> None:
    """Segments stay, so each step begins with those of the step before."""
    build = TraceBuilder(default_manifest())
    for number in range(3):
        build.segment(0x10000000000 * (number + 1), (number + 1) * GIB)
        build.step()
    assert step_peaks(build.trace()) == [GIB, 3 * GIB, 6 * GIB]
