"""Runs a verb by keywords and returns its result: `presim.ask`."""

from __future__ import annotations

import contextlib
import difflib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click

from presim.cli.declared import Declaration, command_of, declarations, in_order, python_keyword, several_words
from presim.cli.main import cli
from presim.errors import InputError
from presim.studies.saved_results.read_result import read
from presim.system.files import write_file
from presim.system.files.scratch import temporary_folder

_PRINTING = ("doctor", "network", "trace")  # verbs whose --json prints the result
Option: TypeAlias = bool | float | str | Sequence[str] | None


def answer(verb: str, arguments: Sequence[str], options: Mapping[str, Option]) -> Any:
    """The content of the result that a verb writes; what it prints is dropped.

    Raises:
        InputError: there is no such verb or option, it writes no result, or it refuses its input.
    """
    with temporary_folder("asked") as folder:
        path = Path(folder, "result.json")
        asking = _asking(verb, path)
        words = [verb, *in_order(verb, arguments, [*_words(verb, options), *asking])]
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        try:
            with contextlib.redirect_stdout(printed):
                cli.main(words, prog_name="presim", standalone_mode=False)
        except click.ClickException as error:
            raise InputError(error.format_message()) from error
        if str(path) not in asking:
            write_file(path, printed.buffer.getvalue())
        return read(path).content


def _asking(verb: str, path: Path) -> list[str]:
    """The words with which a verb writes its result to a file, or prints it where it takes none.

    Raises:
        InputError: it does neither.
    """
    if verb in _PRINTING:
        return ["--json"]
    if verb == "validate":
        return ["--out", str(path)]
    if not any("--json" in option.opts and not getattr(option, "is_flag", False) for option in command_of(verb).params):
        raise InputError(f"`presim {verb}` writes no result with --json, so it cannot be asked for one")
    return ["--json", str(path)]


def _words(verb: str, options: Mapping[str, Option]) -> list[str]:
    by_keyword = {python_keyword(field.flag): field for field in declarations(verb) if field.flag}
    words: list[str] = []
    for keyword, value in options.items():
        if keyword not in by_keyword:
            raise InputError(_unknown(verb, keyword, list(by_keyword)))
        words += _option(by_keyword[keyword], value)
    return words


def _unknown(verb: str, keyword: str, keywords: Sequence[str]) -> str:
    if keyword in ("json", "json_file"):
        return f"leave out {keyword}: presim.ask returns what --json of `presim {verb}` writes"
    similar_keywords = difflib.get_close_matches(keyword, keywords, 2)
    hint = f"did you mean {' or '.join(similar_keywords)}?" if similar_keywords else f"`presim {verb} --help` lists all"
    return f"`presim {verb}` has no option {keyword!r}; {hint}"


def _option(field: Declaration, value: Option) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        opposite = [field.opposite_flag] if field.opposite_flag else []
        return [field.flag] if value else opposite
    values = [value] if isinstance(value, str | float | int) else value
    if field.num_words > 1:
        return several_words(field, [_word(part) for part in values])
    return [f"{field.flag}={_word(part)}" for part in values]


def _word(value: float | str) -> str:
    return repr(value) if isinstance(value, float) else str(value)
