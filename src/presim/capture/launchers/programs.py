"""Programs that are neither Python nor a launcher, with advice on how to capture them.

A shell that runs one simple command is read as that command. Programs that pip installed as Python scripts run as such.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from presim.errors import InputError

SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_MORE_THAN_A_COMMAND = re.compile(r"[;|&<>`\n]|\$\(")  # of a shell's text: only the shell can say what it means


def shell_command(words: Sequence[str]) -> list[str]:
    """The words of the one command that ``bash -c 'COMMAND'`` runs, variables of this environment filled in.

    Raises:
        InputError: it runs a file, or more than a command.
    """
    options = [word for word in words[1:2] if re.fullmatch(r"-[a-z]*c", word)]
    text = words[2] if options and len(words) > 2 else ""
    inner = [] if _MORE_THAN_A_COMMAND.search(text) else shlex.split(os.path.expandvars(text))
    if inner:
        return inner[1:] if inner[0] == "exec" else inner
    raise InputError(shell_script(" ".join(words[:2])))


def shell_script(command: str) -> str:
    """What to do with a script of the shell."""
    return (
        f"`{command}` is a script of the shell, which presim does not follow: inside it, put `presim run … --` in "
        "front of the command that starts Python (torchrun …), or give presim that command"
    )


def console_script(name: str) -> str | None:
    """The path of a program that is a Python script, as pip installs them; None: it is none, or not there."""
    path = shutil.which(name)
    return path if path and "python" in _interpreter(path) else None


def why_not(words: Sequence[str], is_command: Callable[[str], bool]) -> str | None:
    """What to do about a command that does not begin with Python or a launcher; None: it may be Python's script."""
    name = os.path.basename(words[0])
    if _interpreter(words[0]).endswith(SHELLS) or name.endswith(".sh"):
        return shell_script(words[0])
    if os.path.isfile(words[0]) or name.endswith(".py"):
        return None
    known = next((at for at, word in enumerate(words) if is_command(word)), None)
    if known is None and not shutil.which(words[0]):
        return None
    if known is None:
        return f"{name!r} is neither a Python script nor a launcher: give presim the command that starts Python"
    return (
        f"{' '.join(words[:known])!r} in front of a command is not followed: leave it out, and begin with "
        f"{words[known]!r}"
    )


def _interpreter(path: str) -> str:
    """The program that a file names in its first line; empty: none."""
    try:
        with Path(path).open("rb") as file:
            first = file.readline(200)
    except OSError:
        return ""
    return first[2:].decode(errors="replace").strip().split(" -")[0] if first.startswith(b"#!") else ""
