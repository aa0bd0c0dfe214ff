"""Ends a verb by a signal at a moment of its run, and judges what it leaves behind."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

from presim.cli import main
from presim.errors import InputError
from support.command import COMMAND, environment, processes_of
from support.reliability.campaign import run_quietly
from support.reliability.moments import INTERRUPTED, is_marked
from support.reliability.writing_verbs import Writing, files

_MARK = "PRESIM_TEST_MARK"
BEFORE_PRESIM = "ended while Python itself started"
_START_S = 0.5  # of Python on a busy machine
_SECONDS_TO_END = 60.0  # after a signal; what it started has ended by then, too


@dataclasses.dataclass(frozen=True)
class Undisturbed:
    """An undisturbed call: how long it took, how it exited, what it wrote, and its inputs."""

    seconds: float
    code: int
    inputs: dict[str, bytes]
    outputs: dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a call ended: exit code (negative: by that signal) and standard error."""

    code: int
    errors: str
    seconds: float
    alive: int = 0  # processes that it started and left running


def undisturbed(verb: Writing, inputs: Path, folder: Path, *, fork: bool) -> Undisturbed:
    """Run a verb to its end, in a copy of its inputs."""
    shutil.copytree(inputs, folder)
    before = files(folder)
    ended = _forked(verb, folder, None, 0) if fork else _started(verb, folder, None, 0)
    if ended.code not in (0, 4, 7):
        raise RuntimeError(f"presim {verb.command}: exit code {ended.code}: {ended.errors}")
    after = files(folder)
    return Undisturbed(ended.seconds, ended.code, before, {name: after[name] for name in after if name not in before})


def judged(verb: Writing, inputs: Path, folder: Path, number: int, seconds: float, whole: Undisturbed) -> str:
    """End a verb by a signal after a time, then call it again; what is wrong with how it went, or ``""``.

    `BEFORE_PRESIM` is nothing wrong: no program can answer a signal before its interpreter runs its first line.

    SIGKILL goes to a fork that inherits presim's modules, so that it strikes the work rather than the imports.
    Other signals go to a process of its own, as a terminal or a scheduler sends them. Where all outputs are there,
    nothing is called again: some verbs never overwrite.
    """
    shutil.copytree(inputs, folder)
    try:
        end = _forked if number == signal.SIGKILL else _started
        ended = end(verb, folder, seconds, number)
        if _before_presim(ended, number, seconds, whole) and files(folder) == whole.inputs:
            return BEFORE_PRESIM
        wrong = _badly_ended(ended, number, whole) or _damaged(verb, folder, number, whole)
        if not wrong and files(folder) not in (whole.inputs, whole.inputs | whole.outputs):
            wrong = _not_completed(verb, folder, whole)
        return wrong
    finally:
        shutil.rmtree(folder)


def _before_presim(ended: Ended, number: int, seconds: float, whole: Undisturbed) -> bool:
    early = number != signal.SIGKILL and seconds < max(whole.seconds / 2, _START_S)
    return early and ended.code in (1, -number) and "/presim/" not in ended.errors


def _badly_ended(ended: Ended, number: int, whole: Undisturbed) -> str:
    if ended.alive:
        return f"{ended.alive} processes live on"
    if "Traceback (most recent call last)" in ended.errors:
        return "traceback: " + ended.errors.strip().splitlines()[-1][:200]
    if ended.code == whole.code:
        return ""
    if number == signal.SIGKILL:
        return "" if ended.code == -signal.SIGKILL else f"exit code {ended.code} after SIGKILL"
    name = signal.Signals(number).name
    if ended.code != 128 + number:
        return f"exit code {ended.code} after {name}"
    said = [line for line in ended.errors.splitlines(keepends=True) if line.startswith("presim: ")]
    is_said = said == [INTERRUPTED] or (len(said) == 1 and said[0].startswith(f"{INTERRUPTED.rstrip()}; "))
    return "" if is_said else f"after {name} it prints {ended.errors[-200:]!r}"


def _damaged(verb: Writing, folder: Path, number: int, whole: Undisturbed) -> str:
    """A changed input, a half-written output, or a temporary file that a signal other than SIGKILL leaves."""
    found = files(folder)
    for name, data in whole.inputs.items():
        if found.get(name) != data:
            return f"input {name} changed"
    for name in sorted(found.keys() - whole.inputs.keys()):
        if Path(name).name.startswith(".presim-"):
            if number != signal.SIGKILL:
                return f"temporary file {name} left"
        elif number == signal.SIGKILL and name.removesuffix(".lock") in verb.progress:
            continue  # the study, or Optuna's lock on it, which the next call takes away
        elif number != signal.SIGKILL and name in verb.partial and is_marked(name, found[name]):
            continue
        elif name not in verb.progress and not _is_whole(verb, folder, name, found[name], whole):
            return f"{name} half written"
    return ""


def _is_whole(verb: Writing, folder: Path, name: str, data: bytes, whole: Undisturbed) -> bool:
    if verb.same:
        return data == whole.outputs.get(name)
    if name.endswith(".json"):
        with contextlib.suppress(ValueError):
            return bool(json.loads(data))
        return False
    if name.endswith(".parquet"):
        return (folder / name).stat().st_size > 0  # the job's file has its digest, which `_not_completed` reads
    return bool(data)


def _not_completed(verb: Writing, folder: Path, whole: Undisturbed) -> str:
    """The next call in the same folder keeps what was finished and makes the rest."""
    kept = {name: (folder / name).read_bytes() for name in verb.progress if (folder / name).exists()}
    ended = _forked(verb, folder, None, 0)
    if ended.code != whole.code:
        return f"the next call ends with {ended.code}: {ended.errors[-200:]}"
    found = files(folder)
    for name, data in kept.items():
        if not found[name].startswith(data[: data.rfind(b"\n") + 1]):
            return f"the next call loses a part of {name}"
    for name, data in whole.outputs.items():
        if verb.same and name not in verb.progress and found.get(name) != data:
            return f"the next call writes another {name}"
    return _unreadable_job(folder)


def _unreadable_job(folder: Path) -> str:
    from presim.trace import job_store

    try:
        if (folder / "job").exists():
            job_store.load(folder / "job")
    except InputError as error:
        return f"job is damaged: {error}"
    return ""


def _forked(verb: Writing, folder: Path, seconds: float | None, number: int) -> Ended:
    """Run it in a fork, which the signal ends after a time, if any."""
    mark = uuid.uuid4().hex
    reading, writing = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if not child:
        os.close(reading)
        os.environ[_MARK] = mark
        os.environ["PYTHONPATH"] = environment({})["PYTHONPATH"]
        code = 1
        try:
            code, errors = run_quietly(lambda: main.run(verb.command.split()), folder)
            os.write(writing, errors[-60_000:])
        finally:
            os._exit(code)
    os.close(writing)
    if seconds is not None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
    _, status = os.waitpid(child, 0)
    took = time.monotonic() - began
    alive = _alive(mark)
    with open(reading, "rb") as pipe:
        text = pipe.read().decode("utf-8", "replace")
    return Ended(os.waitstatus_to_exitcode(status), text, took, alive)


def _started(verb: Writing, folder: Path, seconds: float | None, number: int) -> Ended:
    """Run it as a process group of its own, which the signal reaches as a whole."""
    mark = uuid.uuid4().hex
    began = time.monotonic()
    process = subprocess.Popen(
        [*COMMAND, *verb.command.split()],
        cwd=folder,
        env=environment({_MARK: mark}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,  # a shell may ignore it
    )
    if seconds is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        if process.poll() is None:
            os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=1800)
    took = time.monotonic() - began
    return Ended(process.returncode, errors, took, _alive(mark))


def _alive(mark: str) -> int:
    """Processes of a call that still live after a while."""
    until = time.monotonic() + _SECONDS_TO_END
    while alive := processes_of(f"{_MARK}={mark}"):
        if time.monotonic() > until:
            return len(alive)
        time.sleep(0.1)
    return 0
