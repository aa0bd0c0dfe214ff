"""Which values the script reads, by place."""

from __future__ import annotations

import itertools

import pytest

from presim.capture.device_values import read_backs
from presim.capture.device_values.policies import Origin
from presim.capture.device_values.read_backs import ReadBacks
from presim.trace.schema import ReadBack


def test_every_place_is_listed_the_most_frequent_first(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"train.py:{number}" for number in range(1000)]
    places = itertools.chain(lines, ["train.py:7"] * 2)
    monkeypatch.setattr(read_backs, "calling_line", lambda: next(places))
    reads = ReadBacks({"watchdog": "60"}, pytest.fail)
    monkeypatch.setattr(reads, "_count_descriptions", lambda: 0, raising=False)  # of the hook, which tells of reads
    for _ in range(1001):
        reads._read(b"aten::_local_scalar_dense", Origin.ZERO, 0)
    reads._read(b"aten::nonzero", Origin.COMPUTED, 0)
    listed = reads.listed()
    assert listed[0] == ReadBack("train.py:7", "item", "zero", 2)
    assert len(listed) == 1001
    assert {read.line for read in listed} == set(lines)
    assert listed[1:] == tuple(sorted(listed[1:], key=lambda read: (read.line, read.what)))
