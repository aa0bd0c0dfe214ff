"""`presim models`: every name that a verb takes is listed, with what the verbs know of it."""

from __future__ import annotations

import json

import pytest
from click.shell_completion import ShellComplete

from presim.cli import main
from presim.composition.graph.take import named_models
from presim.serving import model_lookup
from presim.verbs.list_models import list_models


def test_every_name_is_listed_with_its_verbs() -> None:
    entries = {entry.name: entry for entry in list_models().models}
    assert set(entries) == set(named_models()) | set(model_lookup.names())
    assert {name for name, entry in entries.items() if "compose" in entry.verbs} == set(named_models())
    served = {name for name, entry in entries.items() if "serve" in entry.verbs}
    assert served == set(entries) - {"clip-vit-large", "t5-3b", "vit-huge"}  # they generate no text by a decoder alone
    assert {name for name, entry in entries.items() if entry.parameters} == served


def test_figures_are_those_of_serving() -> None:
    entry = next(entry for entry in list_models("llama3-8b").models if entry.name == "llama3-8b")
    assert entry.parameters == model_lookup.find("llama3-8b").parameters == 8_030_261_248


def test_json_has_what_the_word_selects(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["models", "mixtral", "--json", "-"]) == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)["models"]]
    assert names == ["mixtral-8x22b", "mixtral-8x7b"]


def test_a_word_that_no_name_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["models", "zebra"]) == 2
    assert capsys.readouterr().err == (
        "presim: no model has 'zebra' in its name; `presim models` lists all, and a config.json is one, too\n"
    )


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("presim comp", {"compose", "compare"}),
        ("presim compose --gpu h200", {"h200", "h200-nvl"}),
        ("presim serve mixtral", {"mixtral-8x7b", "mixtral-8x22b"}),
        ("presim compose mixtral-8x7", {"mixtral-8x7b"}),
        ("presim compose --recompute f", {"full"}),
    ],
)
def test_a_shell_completes_verbs_options_gpus_and_models(words: str, completions: set[str]) -> None:
    *before, incomplete = words.split()[1:]
    found = ShellComplete(main.cli, {}, "presim", "_PRESIM_COMPLETE").get_completions(before, incomplete)
    assert {item.value for item in found} == completions


def test_the_help_has_every_verb_in_a_group() -> None:
    grouped = [verb for verbs in main.GROUPS.values() for verb in verbs]
    assert set(main.VERBS) <= set(grouped)
    assert len(set(grouped)) == len(grouped)
