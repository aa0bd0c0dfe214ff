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

_PASSED_ON = set("BObdquvx")  # options without a value that are passed on to the interpreter
_DROPPED = set("EIPsSi")  # they would disable the emulation, or start an interactive session at the end


def read_python(words: Sequence[str]) -> Launch:
    """Parse a command that starts an interpreter, whose name is the first word.

    Raises:
        InputError: it runs a string, or has no script.
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
        elif not word.startswith("--") and set(word[1:]) <= _PASSED_ON:
            kept.append(word)
        elif not word.startswith("--") and set(word[1:]) <= _PASSED_ON | _DROPPED:
            notes.append(f"python's option {word} was ignored, because the emulation needs its environment.")
        else:
            raise InputError(f"{words[0]} {word}: presim runs only scripts and modules (-m); put the code into a file")
    return _launch(rest, False, kept, notes, words)


def _launch(program: list[str], module: bool, kept: list[str], notes: list[str], words: Sequence[str]) -> Launch:
    if not program:
        raise InputError(f"`{' '.join(words)}` has no script or module to run; add it after the options")
    return Launch(
        program[0],
        tuple(program[1:]),
        module,
        launcher="python",
        default_shape=Shape(nodes=1, per_node=1),
        schemes=(python_variables,),
        python=tuple(kept),
        notes=tuple(notes),
    )


def python_variables(place: Place) -> dict[str, str]:
    """No variables for a single process; those of torchrun for one of several, however they are started."""
    return torchrun_variables(place) if place.world_size > 1 else {}


def _interpreter_notes(name: str) -> list[str]:
    """A note if the command names another interpreter, because the script runs with presim's."""
    named = shutil.which(name) or (name if os.sep in name else sys.executable)
    if os.path.dirname(os.path.abspath(named)) == os.path.dirname(os.path.abspath(sys.executable)):
        return []
    return [f"The script ran with presim's own interpreter, {sys.executable}, not with {named}."]


def read_program(words: Sequence[str], around: Launch) -> Launch:
    """The program started by a launcher that does not choose the interpreter: ``python script`` or a script itself.

    Raises:
        InputError: it is not a Python program.
    """
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
    """Split leading ``NAME=value`` words, as after ``env``, from the rest."""
    variables: dict[str, str] = {}
    rest = list(words)
    while rest and "=" in rest[0] and rest[0].partition("=")[0].isidentifier():
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    return variables, rest
