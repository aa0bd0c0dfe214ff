"""Handle programs that are neither Python nor a launcher.

A shell that runs one simple command is parsed as that command. Python scripts installed by pip run as scripts. For
other programs the error says how to capture them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence

from presim.errors import InputError
from presim.system.files import first_bytes

SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_SHELL_SYNTAX = re.compile(r"[;|&<>`\n]|\$\(")  # in a shell command: only the shell can interpret these


def shell_command(words: Sequence[str]) -> list[str]:
    """The words of the single command in ``bash -c 'COMMAND'``, with this environment's variables expanded.

    Raises:
        InputError: it runs a file, or more than one command.
    """
    options = [word for word in words[1:2] if re.fullmatch(r"-[a-z]*c", word)]
    text = words[2] if options and len(words) > 2 else ""
    inner = [] if _SHELL_SYNTAX.search(text) else shlex.split(os.path.expandvars(text))
    if inner:
        return inner[1:] if inner[0] == "exec" else inner
    raise InputError(shell_script(" ".join(words[:2])))


def shell_script(command: str) -> str:
    """The error for a shell script."""
    return (
        f"`{command}` is a shell script, which presim cannot follow: inside it, put `presim run … --` before the "
        "command that starts Python (torchrun …), or give presim that command"
    )


def console_script(name: str) -> str | None:
    """The path of a Python script installed by pip; None if there is no such script."""
    path = shutil.which(name)
    return path if path and "python" in _interpreter(path) else None


def unsupported_reason(words: Sequence[str], is_command: Callable[[str], bool]) -> str | None:
    """The error for a command that starts with neither Python nor a launcher; None if it may be a Python script."""
    name = os.path.basename(words[0])
    if _interpreter(words[0]).endswith(SHELLS) or name.endswith(".sh"):
        return shell_script(words[0])
    if os.path.isfile(words[0]) or name.endswith(".py"):
        return None
    command_index = next((index for index, word in enumerate(words) if is_command(word)), None)
    if command_index is None and not shutil.which(words[0]):
        return None
    if command_index is None:
        return f"{name!r} is neither a Python script nor a launcher: give presim the command that starts Python"
    return (
        f"presim does not support {' '.join(words[:command_index])!r} before a command: leave it out, and start with "
        f"{words[command_index]!r}"
    )


def _interpreter(path: str) -> str:
    """The interpreter in a file's first line, or an empty string."""
    first = first_bytes(path, 200).partition(b"\n")[0]
    return first[2:].decode(errors="replace").strip().split(" -")[0] if first.startswith(b"#!") else ""
