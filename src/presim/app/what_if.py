"""What-if questions: commands that a kept process answers, without a result in the project folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from presim.app import words
from presim.app.figures import summary_of
from presim.app.key_figures import Summary
from presim.cli.declared import Values, option_of
from presim.errors import InputError
from presim.studies.saved_results.read_result import read
from presim.system.files import decode_json
from presim.system.files.scratch import temporary_folder

LIMIT_S = 120.0  # of one question, a model's first graph included; longer ones are asked as jobs


class RefusedError(InputError):
    """The command line refuses values. ``errors``: what it says, by option; an empty name: of none in particular."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = errors


class WhatIf:
    """The process that answers, started at the first question. One question is answered at a time."""

    def __init__(self, folder: Path, limit_s: float = LIMIT_S, niceness: int = 0) -> None:
        """``folder``: where commands run, for the files that they name. ``niceness``: of the process, 0 to 19."""
        self._folder, self._limit_s, self._niceness = folder, limit_s, niceness
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, name: str, values: Values) -> Summary:
        """The summary of the result that a question's values have.

        Raises:
            RefusedError: the command line refuses them.
            InputError: the answer takes too long.
        """
        if errors := words.errors(name, values):
            raise RefusedError(errors)
        with self._lock, temporary_folder("what-if") as folder:
            result = Path(folder, "result.json")
            reply = self._answer([*words.words(name, values, str(result)), "-q"])  # nobody reads its tables
            if not result.is_file():
                sentence = last_sentence(reply["text"])
                raise RefusedError({option_of(name, sentence, values): sentence})
            return summary_of(read(result))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            _kill(self._process)
            self._process.wait()
            self._process = None

    def _answer(self, parts: list[str]) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "presim.app.worker", str(self._niceness)],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(parts) + b"\n")
        process.stdin.flush()
        timer = threading.Timer(self._limit_s, _kill, (process,))
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if not line:
            self.close()
            raise InputError(f"no answer within {self._limit_s:g} s: run it as a job instead")
        answered: dict[str, Any] = decode_json(line)
        return answered


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children, of which one may export a model."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def last_line(printed: str) -> str:
    """The last line that is not blank; empty if there is none."""
    return next((line.strip() for line in reversed(printed.splitlines()) if line.strip()), "")


def last_sentence(printed: str) -> str:
    """What the command line says last, without its name before it."""
    return last_line(printed).removeprefix("presim: ").removeprefix("Error: ") or "the command printed nothing"
