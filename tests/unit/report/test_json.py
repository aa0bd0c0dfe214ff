"""The result as a file."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import msgspec
import pytest

from presim.analysis.summarise import summarise
from presim.errors import InputError
from presim.report import json
from presim.result import Result
from presim.studies.saved_results.decode import decode as load
from support import fakes, workloads

RANK = {
    "rank": 0,
    "represented": 8,
    "parameters": None,
    "exit": "ok",
    **dict.fromkeys(
        ("step_time_s", "compute_s", "exposed_communication_s", "waiting_s", "bubble_s", "host_bound_s"), 0.1
    ),
    **dict.fromkeys(("peak_allocated_bytes", "peak_reserved_bytes"), 1 << 30),
}


@pytest.fixture(scope="module")
def result() -> Result:
    priced = fakes.priced(workloads.launch_bound())
    return summarise(priced, fakes.simulate(priced), fakes.DEVICE)


def test_rows_of_numbers_take_one_line(result: Result) -> None:
    """A timeline of many points does not drown the figures; the keys are sorted."""
    text = json.encode(result).decode()
    assert re.search(r'"times_s": \[[\d.]+, [\d.]+\],?\n', text)
    assert text.index('"collectives"') < text.index('"step_time_s"')


def test_a_step_of_days_is_read_as_it_was_written(result: Result) -> None:
    """Its FLOPs have more than 64 bits."""
    long = msgspec.structs.replace(result, flops=msgspec.structs.replace(result.flops, model=258254432425096511488))
    assert json.decode(json.encode(long)) == long


def test_a_newer_result_is_refused_in_words(result: Result) -> None:
    """Even where its fields no longer fit."""
    with pytest.raises(InputError, match=r"^the result was written by a newer presim \(schema 9, this one reads 2\)"):
        json.decode(b'{"schema_version": 9, "job": 1}')


def test_a_result_of_the_last_version_is_read(result: Result) -> None:
    """It counted compared ranks alone, and knew neither misuse nor shared ports."""
    content = msgspec.to_builtins(result)
    for name in ("coverage", "misuse", "kind", "draws", "every_rank", "energy"):
        del content[name]
    del content["time"]["shared_ports_s"]
    content |= {"schema_version": 1, "checked_ranks": 3, "job": {**content["job"], "world_size": 9}}
    content["ranks"] = [RANK]
    found = json.decode(msgspec.json.encode(content))
    coverage = found.coverage
    assert (coverage.captured, coverage.compared, coverage.assumed, coverage.unknown) == (1, 3, 4, 1)
    assert found.step_time_s == result.step_time_s
    assert found.schema_version == 2


def test_an_older_result_is_refused_in_words() -> None:
    sentence = r"^r\.json was written by an older presim \(schema 0, this one reads 1 and 2\); create it again"
    with pytest.raises(InputError, match=sentence):
        json.decode(b'{"schema_version": 0}', "r.json")


def test_a_result_of_another_verb_is_named(result: Result) -> None:
    """`presim compare` and `presim training` take results of runs alone."""
    sentence = (
        r"^r\.json is a result of the kind 'training', not of a run; show it with `presim report`, or name a result of "
        r"`presim run --json`$"
    )
    with pytest.raises(InputError, match=sentence):
        json.decode(b'{"schema_version": 1, "kind": "training"}', "r.json")


def test_a_result_that_names_its_kind_by_a_schema_is_named() -> None:
    with pytest.raises(InputError, match=r"^s\.json is a result of the kind 'serving', not of a run; show it with"):
        json.decode(b'{"schema": "presim-serving/1"}', "s.json")


def test_a_packed_result_is_read(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "r.json.gz"
    path.write_bytes(gzip.compress(json.encode(result)))
    assert json.read(path) == result
    assert load(path) == msgspec.json.decode(json.encode(result))


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
