"""Replies come back as they were kept, whoever else reads and writes; files that are none count as missing."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from presim.errors import InputError
from presim.planner.trials.reply_cache import ReplyCache, name_of, state_of
from presim.planner.trials.trial_messages import Reply
from support.searching import figures

PRICED = Reply(fate="priced", figures=figures(2.0))


def test_a_reply_comes_back(tmp_path: Path) -> None:
    ReplyCache(tmp_path, 1 << 20).add(name_of("a plan"), PRICED)
    assert ReplyCache(tmp_path, 1 << 20).find(name_of("a plan")) == PRICED
    assert ReplyCache(tmp_path, 1 << 20).find(name_of("another plan")) is None


@pytest.mark.parametrize("left", [b"", b"\x81", b"{}", b"\x80\x04K\x01."], ids=["empty", "half", "JSON", "pickle"])
def test_a_file_that_is_no_reply_counts_as_missing(left: bytes, tmp_path: Path) -> None:
    cache, name = ReplyCache(tmp_path, 1 << 20), name_of("a plan")
    cache.add(name, PRICED)
    next(path for path in tmp_path.rglob("*") if path.is_file()).write_bytes(left)
    assert cache.find(name) is None
    cache.add(name, PRICED)
    assert cache.find(name) == PRICED


def test_the_oldest_replies_go_when_there_are_too_many(tmp_path: Path) -> None:
    each = 100
    cache = ReplyCache(tmp_path, 1 << 30)
    for number in range(each):
        cache.add(name_of(number), PRICED)
        path = next(path for path in tmp_path.rglob("*") if path.name == name_of(number)[2:])
        os.utime(path, ns=(number, number))
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    small = ReplyCache(tmp_path, size // 2)
    small.add(name_of("new"), PRICED)
    assert small.find(name_of(each - 1)) == PRICED
    assert small.find(name_of("new")) == PRICED
    assert small.find(name_of(0)) is None
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= size // 2


def test_many_write_and_read_at_once(tmp_path: Path) -> None:
    def work(number: int) -> Reply | None:
        cache, name = ReplyCache(tmp_path, 1 << 20), name_of(number % 3)
        cache.add(name, PRICED)
        return cache.find(name)

    with ThreadPoolExecutor(8) as threads:
        assert set(map(repr, threads.map(work, range(100)))) == {repr(PRICED)}


def test_names_tell_apart_what_they_are_made_of(tmp_path: Path) -> None:
    assert len({name_of("ab", "c"), name_of("a", "bc"), name_of(b"ab", "c"), name_of("abc")}) == 4
    file = tmp_path / "prices"
    file.write_text("1")
    before = state_of([file])
    file.write_text("12")
    assert state_of([file]) != before


def test_the_limit_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESIM_CACHE_MB", "many")
    with pytest.raises(InputError, match=r"^PRESIM_CACHE_MB=many: set a whole number of megabytes, "):
        ReplyCache.default()
    monkeypatch.setenv("PRESIM_CACHE_MB", "0")
    assert ReplyCache.default() is None
