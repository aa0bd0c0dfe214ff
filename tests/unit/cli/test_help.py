"""All verbs alike: options in groups, common ones first; --json FILE, --html FILE and -q."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from presim.cli import main
from presim.cli.help_groups import HEADINGS, common_flags, heading_of
from presim.cli.main import cli
from presim.cli.verb import Verb, longest_flag

_MOST_SHOWN = 32  # options that --help shows
# Verbs that write no result of their own, and why.
_WITHOUT_RESULT = {
    "report": "it shows a result, and --quiet would show none",
    "app": "a server",
    "view": "a server",
}


def _verbs(command: click.Command, name: str, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word in command.list_commands(context):
        child = command.get_command(context, word)
        assert child is not None
        yield from _verbs(child, f"{name} {word}".strip(), context)


VERBS = dict(_verbs(cli, "", click.Context(cli)))


def flags_of(verb: str) -> dict[str, click.Option]:
    """The options of a verb by their longest flag."""
    return {longest_flag(option): option for option in VERBS[verb].params if isinstance(option, click.Option)}


@pytest.mark.parametrize("verb", VERBS)
def test_each_option_has_a_heading_and_a_help(verb: str) -> None:
    """A new option gets its line in `presim.cli.help_groups`."""
    assert isinstance(VERBS[verb], Verb)
    assert not [flag for flag in flags_of(verb) if not heading_of(verb, flag)]
    assert common_flags(verb) <= flags_of(verb).keys()
    assert len(common_flags(verb) or flags_of(verb)) <= _MOST_SHOWN


def _words(text: str) -> str:
    """With blanks alone between words: flags of one option have a comma or a slash between them."""
    return text.translate(str.maketrans("/,\n", "   "))


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_the_common_options_and_help_all_shows_all(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*verb.split(), "--help"]) == 0
    brief = _words(capsys.readouterr().out)
    assert main.run([*verb.split(), "--help-all"]) == 0
    full = _words(capsys.readouterr().out)
    assert not [flag for flag in flags_of(verb) if f"{flag} " not in full]
    assert all(f"{flag} " in brief for flag in common_flags(verb))
    assert ("--help-all" in brief) == bool(common_flags(verb))
    assert "Options:" not in brief


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in _WITHOUT_RESULT])
def test_a_result_goes_to_json_and_html_files_and_can_be_quiet(verb: str) -> None:
    """By the same words in every verb; ``--json`` without a file prints."""
    flags, expected = flags_of(verb), flags_of("serve")
    assert flags.keys() >= {"--json", "--html", "--quiet"}
    for flag in ("--json", "--html", "--quiet"):
        for attribute in ("opts", "metavar", "help", "is_flag", "flag_value"):
            assert getattr(flags[flag], attribute) == getattr(expected[flag], attribute)
    assert (flags["--json"].is_flag, flags["--json"].flag_value) == (False, "-")


@pytest.mark.parametrize("verb", _WITHOUT_RESULT)
def test_no_verb_is_excused_for_nothing(verb: str) -> None:
    assert not flags_of(verb).keys() >= {"--json", "--html", "--quiet"}


def test_a_shown_result_goes_to_files_too() -> None:
    """By the words of the verbs that write results."""
    assert flags_of("report")["--json"].help == flags_of("serve")["--json"].help
    assert "--html" in flags_of("report")


@pytest.mark.parametrize("flag", ["--csv", "--perfetto", "--chakra", "--kineto", "--save", "--plot", "--report"])
def test_a_file_has_one_metavar_in_all_verbs(flag: str) -> None:
    assert {flags_of(verb)[flag].metavar for verb in VERBS if flag in flags_of(verb)} in ({"FILE"}, {"DIR"})


def test_out_and_write_say_whether_they_are_a_file_or_a_folder() -> None:
    """`fit` writes either."""
    metavars = {(verb, flags_of(verb)[flag].metavar) for verb in VERBS for flag in ("--out", "--write")
                if flag in flags_of(verb)}  # fmt: skip
    assert {name for verb, name in metavars if verb != "fit"} == {"FILE", "DIR", "FRAMEWORK FILE"}


def test_each_heading_is_used() -> None:
    used_headings = {heading_of(verb, flag) for verb in VERBS for flag in flags_of(verb)}
    assert used_headings == set(HEADINGS)
    all_flags = {flag for verb in VERBS for flag in flags_of(verb)}
    assert {flag for flags in HEADINGS.values() for flag in flags.split()} == all_flags


def test_each_verb_is_in_a_group_of_the_help() -> None:
    assert sorted(verb for verbs in main.GROUPS.values() for verb in verbs) == sorted(main.VERBS)
