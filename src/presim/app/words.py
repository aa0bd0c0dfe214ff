"""The values of a form as a command line and a Python call, and what the command line says of them."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import msgspec

from presim.app.cluster_picture import ClusterPicture, picture_of
from presim.app.forms import form_of
from presim.app.questions import SCRIPT_QUESTION, question
from presim.cli.declared import Declaration, Values, declarations, errors_of, python_keyword, split, words_of


class Checked(msgspec.Struct, frozen=True):
    """What the values of a form stand for."""

    command: str
    python: str
    errors: dict[str, str]  # by option
    cluster: ClusterPicture


def check(name: str, values: Values, folder: Path) -> Checked:
    """The command, the Python call, the errors and the cluster of the values of a question's form.

    ``folder``: of the files that they name.

    Raises:
        InputError: there is no such question.
    """
    return Checked(
        command(words(name, values)), python_call(name, values), errors(name, values), picture_of(values, folder)
    )


def words(name: str, values: Values, result: str = "") -> list[str]:
    """The words after ``presim``; ``result``: name of the file for --json."""
    subject = question(name)
    allowed = {field: value for field, value in values.items() if field not in subject.omitted}
    return [name, *words_of(name, allowed, ["--json", result] if result else [])]


def errors(name: str, values: Values) -> dict[str, str]:
    """By option, what the command line says of its value."""
    needed = {
        field.name: f"needed: {field.help}"
        for group in form_of(name).groups
        for field in group.fields
        if field.is_required and not str(values.get(field.name, "")).strip()
    }
    return {**needed, **_commands(name, values), **errors_of(name, values)}


def _commands(name: str, values: Values) -> dict[str, str]:
    """Says so where arguments could be read as a command of the user's own, which `search` would run."""
    if name == SCRIPT_QUESTION.name:
        return {}
    arguments = {field.name: str(values.get(field.name, "")) for field in declarations(name) if not field.flag}
    return {
        argument: f"{text[:80]}: a command is started from the command line only"
        for argument, text in arguments.items()
        if any(word.startswith("-") for word in split(text))
    }


def command(parts: list[str]) -> str:
    """The command as a shell takes it."""
    return shlex.join(["presim", *parts])


def python_call(name: str, values: Values) -> str:
    """The call of `presim.ask` with the same answer."""
    arguments, options = [repr(name)], []
    for declared in declarations(name):
        value = values.get(declared.name, "")
        if not value or declared.name in question(name).omitted:
            continue
        if not declared.flag:
            arguments += [repr(part) for part in (split(str(value)) if declared.is_multiple else [str(value)])]
            continue
        literal = _literal(declared, value)
        options.append(f"{python_keyword(declared.flag)}={literal}")
    return f"import presim\n\nresult = presim.ask({', '.join([*arguments, *options])})"


def _literal(declared: Declaration, value: str | bool) -> str:
    text = str(value).strip()
    if declared.type == "switch":
        return "True"
    if declared.opposite_flag:
        return str(text != declared.opposite_flag)
    if declared.is_multiple:
        return repr(split(text))
    return text if declared.type == "number" and _is_number(text) else repr(text)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word and math.isfinite(float(word))
