"""Runs a verb by keywords and returns its result: `presim.ask`."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click

from presim.cli.declared import Declaration, command_of, in_order, several_words
from presim.cli.main import cli
from presim.cli.verb_keywords import Keyword, keywords_of, verb_and_arguments
from presim.errors import InputError
from presim.studies.saved_results.read_result import read
from presim.system.files.scratch import temporary_folder

Value: TypeAlias = bool | float | str | os.PathLike[str]
Option: TypeAlias = Value | Sequence[Value] | None


def answer(verb: str, arguments: Sequence[str], options: Mapping[str, Option]) -> Any:
    """The content of the result that a verb writes; what it prints is dropped.

    Raises:
        InputError: there is no such verb or option, it writes no result, or it refuses its input.
    """
    with temporary_folder("asked") as folder:
        path = Path(folder, "result.json")
        command, arguments = verb_and_arguments(verb, arguments)
        options_and_out = [*_words(command, options), _out(command), str(path)]
        words = [*command.split(), *in_order(command, arguments, options_and_out)]
        try:
            with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
                cli.main(words, prog_name="presim", standalone_mode=False)
        except click.ClickException as error:
            raise InputError(error.format_message()) from error
        return read(path).content


def _out(command: str) -> str:
    """The option with which a command writes its result to a file.

    Raises:
        InputError: it writes none.
    """
    if command == "validate":
        return "--out"
    if not any("--json" in option.opts for option in command_of(command).params):
        raise InputError(f"`presim {command}` writes no result with --json, so it cannot be asked for one")
    return "--json"


def _words(verb: str, options: Mapping[str, Option]) -> list[str]:
    keywords = keywords_of(verb)
    words: list[str] = []
    for name, value in options.items():
        if name not in keywords:
            raise InputError(_unknown(verb, name, list(keywords)))
        words += _option(keywords[name], value)
    return words


def _unknown(verb: str, keyword: str, keywords: Sequence[str]) -> str:
    if keyword in ("json", "json_file"):
        return f"leave out {keyword}: presim.ask returns what --json of `presim {verb}` writes"
    similar_keywords = difflib.get_close_matches(keyword, keywords, 2)
    hint = f"did you mean {' or '.join(similar_keywords)}?" if similar_keywords else f"`presim {verb} --help` lists all"
    return f"`presim {verb}` has no option {keyword!r}; {hint}"


def _option(keyword: Keyword, value: Option) -> list[str]:
    option = keyword.option
    if value is None:
        return []
    if isinstance(value, bool):
        return _switch(option, value != keyword.is_inverse)
    values = [value] if isinstance(value, str | int | float | os.PathLike) else value
    if option.num_words > 1:
        return several_words(option, [_word(part) for part in values])
    return [f"{option.flag}={_word(part)}" for part in values]


def _switch(option: Declaration, is_given: bool) -> list[str]:
    if is_given:
        return [option.flag]
    return [option.opposite_flag] if option.opposite_flag else []


def _word(value: Value) -> str:
    return repr(value) if isinstance(value, float) else str(value)
