"""Older engines: another core is priced with a wider interval, and steps are not scheduled ahead."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from presim.cli.serve import command
from presim.errors import InputError
from presim.serving.engine_versions import has_other_core, is_asynchronous, numbers_of


@pytest.mark.parametrize(
    ("version", "numbers"), [("0.6.3.post1", (0, 6, 3)), ("v0.33", (0, 33)), ("1", (1,)), ("0.11.0rc2", (0, 11, 0))]
)
def test_versions_begin_with_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert numbers_of(version) == numbers


@pytest.mark.parametrize("word", ["newest", "", "x0.1", "0" * 41])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(InputError, match="is a version such as"):
        numbers_of(word)


def test_vllm_has_its_core_since_0_8_and_schedules_ahead_since_0_14() -> None:
    assert [has_other_core("vllm", version) for version in (None, "0.7.3", "0.8.0", "0.33")] == [
        False,
        True,
        False,
        False,
    ]
    assert [is_asynchronous("vllm", version) for version in (None, "0.13.0", "0.14")] == [True, False, True]
    assert not has_other_core("sglang", "0.1")


def test_an_old_engine_has_wider_intervals_and_a_note() -> None:
    words = ["llama3-8b", "--gpu", "h100-sxm", "--requests", "8", "--max-model-len", "8192", "--json", "-"]
    new, old = (
        json.loads(CliRunner().invoke(command, [*words, *more]).output) for more in ((), ("--engine-version", "0.6.3"))
    )
    assert new["deployment"]["engine_defaults"]["version"] == "0.33"
    assert any(note.startswith("Version 0.6.3 is older than the core") for note in old["notes"])
    assert not old["deployment"]["limits"]["async_scheduling"]
    assert old["intervals_80"]["mean_tpot_ms"][1] > 1.45 * old["figures"]["mean_tpot_ms"]
    assert new["intervals_80"]["mean_tpot_ms"][1] < 1.4 * new["figures"]["mean_tpot_ms"]
