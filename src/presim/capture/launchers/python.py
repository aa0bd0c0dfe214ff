"""``python [options] script`` and ``python [options] -m module``."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from presim.capture.launchers.launch import Launch, Shape, Worker, torchrun_variables
from presim.capture.launchers.programs import console_script
from presim.errors import InputError

_PASSED_ON = set("BObdquvx")  # options without a value that are passed on to the interpreter
_DROPPED = set("EIPsSi")  # they would disable the emulation, or start an interactive session at the end


def read_python(words: Sequence[str]) -> Launch:
    """Parse a command that starts an interpreter, whose name is the first word.

    Raises:
        InputError: it runs a string, or has no script.
    """
    interpreter_options: list[str] = []
    notes = _interpreter_notes(words[0])
    remaining_words = list(words[1:])
    while remaining_words and remaining_words[0].startswith("-") and remaining_words[0] != "-":
        word = remaining_words.pop(0)
        if word.startswith("-m"):
            module = [word[2:], *remaining_words] if word[2:] else remaining_words
            return _launch(module, True, interpreter_options, notes, words)
        if word.startswith(("-W", "-X")):
            interpreter_options += [word] if word[2:] else [word, *remaining_words[:1]]
            remaining_words = remaining_words if word[2:] else remaining_words[1:]
        elif not word.startswith("--") and set(word[1:]) <= _PASSED_ON:
            interpreter_options.append(word)
        elif not word.startswith("--") and set(word[1:]) <= _PASSED_ON | _DROPPED:
            notes.append(f"python's option {word} was ignored, because the emulation needs its environment.")
        else:
            raise InputError(f"{words[0]} {word}: presim runs only scripts and modules (-m); put the code into a file")
    return _launch(remaining_words, False, interpreter_options, notes, words)


def _launch(
    program: list[str], module: bool, interpreter_options: list[str], notes: list[str], words: Sequence[str]
) -> Launch:
    if not program:
        raise InputError(f"`{' '.join(words)}` has no script or module to run; add it after the options")
    return Launch(
        program[0],
        tuple(program[1:]),
        module,
        launcher="python",
        default_shape=Shape(nodes=1, per_node=1),
        schemes=(python_variables,),
        python=tuple(interpreter_options),
        notes=tuple(notes),
    )


def python_variables(worker: Worker) -> dict[str, str]:
    """No variables for a single process; those of torchrun for one of several, however they are started."""
    return torchrun_variables(worker) if worker.world_size > 1 else {}


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


def split_assignments(words: Sequence[str]) -> tuple[Mapping[str, str], list[str]]:
    """Split leading ``NAME=value`` words, as after ``env``, from the rest."""
    variables: dict[str, str] = {}
    command = list(words)
    while command and "=" in command[0] and command[0].partition("=")[0].isidentifier():
        name, _, value = command.pop(0).partition("=")
        variables[name] = value
    return variables, command
