"""Recording the values that a script reads, and ending endless loops."""

from __future__ import annotations

import itertools

import pytest

from presim.capture.device_values import read_backs
from presim.capture.device_values.policies import DeviceValueOrigin
from presim.capture.device_values.read_backs import ReadBacks
from presim.trace.schema import ReadBack


class StoppedError(Exception):
    """Raised for an endless loop."""


def _stop(sentence: str) -> None:
    raise StoppedError(sentence)


@pytest.mark.parametrize(("seconds", "more", "ends"), [(0.05, None, True), (0.001, None, False), (0.05, "work", False)])
def test_a_loop_that_keeps_reading_the_same_value_is_ended(
    seconds: float, more: str | None, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at the 1001st of 1500 equal reads, but not within a minute, nor if other work comes in between."""
    clock, descriptions = itertools.count(0.0, seconds), itertools.count()
    monkeypatch.setattr(read_backs.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(read_backs, "calling_line", lambda: "train.py:7")
    reads = ReadBacks({"watchdog": "20"}, _stop)
    came = (lambda: next(descriptions) // 100) if more else (lambda: 0)
    monkeypatch.setattr(reads, "_count_descriptions", came, raising=False)
    message = ""
    try:
        for _ in range(1500):
            reads._read(b"aten::_local_scalar_dense", DeviceValueOrigin.LOSS, 5)
    except StoppedError as error:
        message = str(error)
    assert message.startswith("the script loops at train.py:7 on a device value") == ends
    assert ("it read 5 (item, loss)" in message) == ends


def test_every_place_is_listed_by_frequency(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"train.py:{number}" for number in range(1000)]
    places = itertools.chain(lines, ["train.py:7"] * 2)
    monkeypatch.setattr(read_backs, "calling_line", lambda: next(places))
    reads = ReadBacks({"watchdog": "60"}, pytest.fail)
    monkeypatch.setattr(reads, "_count_descriptions", lambda: 0, raising=False)  # of the hook, which tells of reads
    for _ in range(1001):
        reads._read(b"aten::_local_scalar_dense", DeviceValueOrigin.ZERO, 0)
    reads._read(b"aten::nonzero", DeviceValueOrigin.COMPUTED, 0)
    records = reads.records()
    assert records[0] == ReadBack("train.py:7", "item", "zero", 2)
    assert len(records) == 1001
    assert {read.line for read in records} == set(lines)
    assert records[1:] == tuple(sorted(records[1:], key=lambda read: (read.line, read.what)))
