"""Entries of two passes take turns where the compute stream waits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from presim.composition.side_by_side import entry_order
from presim.trace.schema import Kind

WAIT, WORK = int(Kind.STREAM_WAIT), int(Kind.WORK)


def order(forward: str, backward: str) -> str:
    """Of passes written as letters and waits (|); letters of the result are those of both."""
    text = "0" + forward + backward + "1"
    kind = np.array([WAIT if letter == "|" else WORK for letter in text])
    middle = 1 + len(forward)
    places = entry_order(kind, np.zeros(len(text), np.int64), [(1, middle, middle + len(backward))])
    return "".join(text[place] for place in places.tolist())


def test_pieces_take_turns() -> None:
    assert order("ab|c|d", "A|BC|D") == "0abA|c|BC|d|D1"


def test_a_pass_without_communication_runs_in_the_middle_of_the_other() -> None:
    assert order("ab", "A|B|C") == "0A" + "ab|B|C1"


def test_a_wait_of_another_stream_cuts_nothing() -> None:
    kind, stream = np.full(4, WAIT), np.array([1, 0, 1, 1])
    assert entry_order(kind, stream, [(0, 2, 4)]).tolist() == [0, 2, 3, 1]


@given(st.text("ab|", max_size=9), st.text("AB|", max_size=9))
def test_each_pass_keeps_its_order(forward: str, backward: str) -> None:
    found = order(forward, backward)
    for passed in (forward, backward):
        letters = passed.replace("|", "")
        assert [letter for letter in found if letter in letters] == list(letters)
    assert found.count("|") == (forward + backward).count("|")
