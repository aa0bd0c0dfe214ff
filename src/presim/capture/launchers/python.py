"""``python [options] script`` and ``python [options] -m module``."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from presim.capture.launchers.launch import Launch, Place, Shape, torchrun_variables
from presim.capture.launchers.programs import console_script
from presim.errors import InputError

_KEPT = set("BObdquvx")  # options without a value that are handed on to our interpreter
_DROPPED = set("EIPsSi")  # they would keep the emulation out, or ask questions at the end


def read_python(words: Sequence[str]) -> Launch:
    """A command that starts an interpreter; the first word is its name.

    Raises:
        InputError: it runs a string, or nothing.
    """
    kept: list[str] = []
    notes = _interpreter_notes(words[0])
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word.startswith("-m"):
            module = [word[2:], *rest] if word[2:] else rest
            return _launch(module, True, kept, notes, words)
        if word.startswith(("-W", "-X")):
            kept += [word] if word[2:] else [word, *rest[:1]]
            rest = rest if word[2:] else rest[1:]
        elif not word.startswith("--") and set(word[1:]) <= _KEPT:
            kept.append(word)
        elif not word.startswith("--") and set(word[1:]) <= _KEPT | _DROPPED:
            notes.append(f"Option {word} of python is not followed: the emulation needs its environment.")
        else:
            raise InputError(
                f"{words[0]} {word}: presim runs scripts and modules (-m), nothing else; put it into a file"
            )
    return _launch(rest, False, kept, notes, words)


def _launch(program: list[str], module: bool, kept: list[str], notes: list[str], words: Sequence[str]) -> Launch:
    if not program:
        raise InputError(f"`{' '.join(words)}` names no script or module to run; put it behind the options")
    return Launch(
        program[0],
        tuple(program[1:]),
        module,
        launcher="python",
        otherwise=Shape(nodes=1, per_node=1),
        schemes=(several_variables,),
        python=tuple(kept),
        notes=tuple(notes),
    )


def several_variables(place: Place) -> dict[str, str]:
    """A lone process finds nothing set; one of several, whoever starts them, what torchrun sets."""
    return torchrun_variables(place) if place.world_size > 1 else {}


def _interpreter_notes(name: str) -> list[str]:
    """The script runs with presim's own interpreter, whichever the command names."""
    named = shutil.which(name) or (name if os.sep in name else sys.executable)
    if os.path.dirname(os.path.abspath(named)) == os.path.dirname(os.path.abspath(sys.executable)):
        return []
    return [f"The script ran with presim's own interpreter, {sys.executable}, not with {named}."]


def read_program(words: Sequence[str], around: Launch) -> Launch:
    """What a launcher starts that leaves the interpreter to the command: ``python script`` or a script by itself."""
    script = words[0] if words[0].endswith(".py") else console_script(words[0])
    if not is_python(words[0]) and script is None:
        raise InputError(
            f"{around.launcher or 'the command'} starts {words[0]!r}, which presim cannot run: it runs Python scripts "
            "and modules; give it the command that starts Python"
        )
    inner = Launch(script, tuple(words[1:])) if script else read_python(words)
    return dataclasses.replace(
        around,
        script=inner.script,
        args=inner.args,
        module=inner.module,
        python=inner.python,
        notes=(*around.notes, *inner.notes),
    )


def is_python(word: str) -> bool:
    """Whether a word names an interpreter: ``python``, ``python3.11``, ``/venv/bin/python``."""
    name = os.path.basename(word)
    return name.startswith("python") and set(name[len("python") :]) <= set("0123456789.") and not name.endswith(".")


def assignments(words: Sequence[str]) -> tuple[Mapping[str, str], list[str]]:
    """``NAME=value`` words at the beginning, as after ``env``, and what follows them."""
    variables: dict[str, str] = {}
    rest = list(words)
    while rest and "=" in rest[0] and rest[0].partition("=")[0].isidentifier():
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    return variables, rest
