"""The project folder: results as --json writes them, and beside each its command as a script and its log.

``compose-1.json`` is the result, ``compose-1.sh`` the command with presim's version and the date, ``compose-1.log``
what the command printed. The command line reads and runs all of them; nothing is kept elsewhere.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import shlex
from pathlib import Path

import presim
from presim.app import words
from presim.app.questions import QUESTIONS, SCRIPT_QUESTION
from presim.cli.declared import values_of
from presim.errors import InputError
from presim.system.files import FormatError, decode_json, read_bytes, read_text, write_file

MOST_LETTERS = 80  # of a name
NAME_RULE = f"the app opens names of letters, digits, dots, - and _, at most {MOST_LETTERS}"
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_LETTERS - 1}}}")
_STAMP = re.compile(r"# presim (\S+), (\d{4}-\d\d-\d\d \d\d:\d\d UTC)")
_REMEDY = "delete it, and ask again"


@dataclasses.dataclass(frozen=True)
class ResultOrigin:
    """Where a result comes from; what is not known is empty."""

    command: str = ""
    question: str = ""
    values: dict[str, str | bool] = dataclasses.field(default_factory=dict)
    version: str = ""  # of presim
    date: str = ""


@dataclasses.dataclass(frozen=True)
class Project:
    """A folder of results."""

    folder: Path

    def checked_name(self, name: str) -> str:
        """The name, if it can be that of a result or an uploaded file here.

        Raises:
            InputError: it has other characters, or leads elsewhere.
        """
        if not _NAME.fullmatch(name):
            raise InputError(f"{name[:80]!r} is no name of a result: use letters, digits, dots, - and _")
        return name

    def path(self, name: str, suffix: str = ".json") -> Path:
        """The file of a result."""
        return self.folder / f"{self.checked_name(name)}{suffix}"

    def names(self) -> list[str]:
        """Names of results and commands, the newest first."""
        paths = [path for suffix in (".json", ".sh") for path in self.folder.glob(f"*{suffix}")]
        newest: dict[str, float] = {}
        for path in paths:
            if _NAME.fullmatch(path.stem):
                newest[path.stem] = max(newest.get(path.stem, 0.0), path.stat().st_mtime)
        return sorted(newest, key=lambda name: (-newest[name], name))

    def odd_names(self) -> list[str]:
        """Names of JSON files that no result here can have, as they can be printed."""
        stems = (path.stem for path in self.folder.glob("*.json") if not _NAME.fullmatch(path.stem))
        return sorted(stem.encode("utf-8", "backslashreplace").decode() for stem in stems)

    def free_name(self, prefix: str) -> str:
        """A name that no file of the folder has: the prefix and the next number."""
        used_names = {path.name.split(".")[0] for path in self.folder.iterdir()}
        number = next(number for number in range(1, len(used_names) + 2) if f"{prefix}-{number}" not in used_names)
        return f"{prefix}-{number}"

    def write_command(self, name: str, parts: list[str]) -> None:
        """Keep a command beside its result, as a script that runs it again."""
        moment = datetime.datetime.now(datetime.UTC)
        stamp = f"# presim {presim.__version__}, {moment:%Y-%m-%d %H:%M} UTC"
        write_file(self.path(name, ".sh"), f"#!/bin/sh\n{stamp}\n{words.command(parts)}\n".encode())

    def origin(self, name: str) -> ResultOrigin:
        """The command, values, version and date of a result; without a script, the date of the file."""
        script = self.path(name, ".sh")
        if not script.is_file():
            result = self.path(name)
            if not result.is_file():
                return ResultOrigin()
            moment = datetime.datetime.fromtimestamp(result.stat().st_mtime, datetime.UTC)
            return ResultOrigin(date=f"{moment:%Y-%m-%d %H:%M} UTC")
        text = read_text(script, _REMEDY)
        command = (text.strip().splitlines() or [""])[-1]
        stamp = _STAMP.search(text)
        question, values = _read_command(command)
        return ResultOrigin(command, question, values, *((stamp[1], stamp[2]) if stamp else ("", "")))

    def log(self, name: str) -> str:
        """What the command of a result printed; empty if there is no log."""
        path = self.path(name, ".log")
        return read_text(path, _REMEDY) if path.is_file() else ""

    def remove(self, name: str) -> None:
        """Delete a result, its command and its log."""
        for suffix in (".json", ".sh", ".log"):
            self.path(name, suffix).unlink(missing_ok=True)


def is_model_config(path: Path) -> bool:
    """Whether a file is a model's config as Hugging Face writes it."""
    try:
        content = decode_json(read_bytes(path, _REMEDY))
    except (InputError, FormatError):
        return False
    return isinstance(content, dict) and not {"model_type", "architectures"}.isdisjoint(content)


def _read_command(command: str) -> tuple[str, dict[str, str | bool]]:
    """The question of a command and its values; empty where it is none of the app's."""
    try:
        _, verb, *parts = shlex.split(command)
        if verb not in {question.name for question in (*QUESTIONS, SCRIPT_QUESTION)}:
            return "", {}
        return verb, values_of(verb, parts)
    except (ValueError, InputError):
        return "", {}
