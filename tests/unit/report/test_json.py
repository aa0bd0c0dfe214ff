"""The result as a file."""

from __future__ import annotations

import re

import msgspec
import pytest

from presim.analysis.summarise import summarise
from presim.errors import InputError
from presim.report import json
from presim.result import Result
from support import fakes, workloads


@pytest.fixture(scope="module")
def result() -> Result:
    priced = fakes.priced(workloads.launch_bound())
    return summarise(priced, fakes.simulate(priced), fakes.DEVICE)


def test_rows_of_numbers_take_one_line(result: Result) -> None:
    """A timeline of many points does not drown the figures; the keys are sorted."""
    text = json.encode(result).decode()
    assert re.search(r'"times_s": \[[\d.]+, [\d.]+\],?\n', text)
    assert text.index('"collectives"') < text.index('"step_time_s"')


def test_a_newer_result_is_refused_in_words(result: Result) -> None:
    """Even where its fields no longer fit."""
    with pytest.raises(InputError, match=r"^the result was written by a newer presim \(schema 9, this one reads 2\)"):
        json.decode(b'{"schema_version": 9, "job": 1}')


def test_an_older_result_is_refused_in_words() -> None:
    sentence = (
        r"^r\.json was written by an older presim \(schema 1, this one reads 2\); create it again with this version$"
    )
    with pytest.raises(InputError, match=sentence):
        json.decode(b'{"schema_version": 1}', "r.json")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"schema_version": 2}', b"\xff"])
def test_other_json_is_refused_in_a_sentence(content: bytes) -> None:
    """One sentence that says how to make one."""
    with pytest.raises(InputError, match=r"^r\.json is not a result of presim .*; make one with `presim run --json`$"):
        json.decode(content, "r.json")


def test_every_field_has_a_description() -> None:
    """The schema explains each property, so no reader has to guess a unit."""
    schema = msgspec.json.decode(json.json_schema())
    for name, definition in schema["$defs"].items():
        for field, about in definition["properties"].items():
            assert about.get("description"), f"{name}.{field}"
