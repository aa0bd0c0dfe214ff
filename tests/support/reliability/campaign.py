"""The campaign: every kind of file is broken many times, and each time the verb must end well.

It ends well with an exit code of `presim.errors.ExitCode` other than BUG, no traceback, at most one sentence for what
cannot be used, every output whole or absent, no temporary file left, and within a time and a memory limit. Each call
runs in a fork of its own, so that one cannot spoil the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import pickle
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from presim.cli import main
from presim.errors import PresimError
from support.reliability.attacks import Attack, attacked
from support.reliability.kind import Kind
from support.reliability.mutate import mutate

SECONDS = 120  # of processor time: a loop may be compiled first
MEMORY_BYTES = 6 << 30  # address space beyond what the process has already
_GOOD = {0, 2, 3, 4, 5, 6, 7}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one call ended: its exit code, what it printed to standard error, and what is wrong with it, if anything."""

    code: int
    errors: str
    wrong: str = ""


def called(arguments: Sequence[str], folder: Path) -> Outcome:
    """Run a command line in a fork, in a folder."""
    return forked(lambda: main.run(list(arguments)), folder)


def forked(call: Callable[[], int], folder: Path) -> Outcome:
    """Run something that returns an exit code in a fork, in a folder."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(call, folder, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        reason = f"takes more than {SECONDS} s" if name in ("SIGXCPU", "SIGKILL") else f"killed by {name}"
        return Outcome(-1, text, reason)
    return judged(os.WEXITSTATUS(status), text)


def _child(call: Callable[[], int], folder: Path, writing: int) -> None:
    """Never returns: leaves with the exit code of the command line."""
    code = 1
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 60, SECONDS + 60))
        code, errors = run_quietly(call, folder)
        os.write(writing, errors[-60_000:])
    finally:
        os._exit(code)


def run_quietly(call: Callable[[], int], folder: Path) -> tuple[int, bytes]:
    """Run something here, for a fork that ends behind it: the exit code, and what went to standard error."""
    os.chdir(folder)
    errors = io.BytesIO()
    sys.stdout, sys.stderr = (io.TextIOWrapper(where, "utf-8", "backslashreplace") for where in (io.BytesIO(), errors))
    try:
        code = call()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 2
    except BaseException:  # noqa: BLE001
        code = 1
        sys.stderr.write(traceback.format_exc())
    sys.stderr.flush()
    return code, errors.getvalue()


def judged(code: int, errors: str) -> Outcome:
    """What is wrong with the end of a call."""
    if "Traceback (most recent call last)" in errors:
        return Outcome(code, errors, "traceback: " + errors.strip().splitlines()[-1][:200])
    if code not in _GOOD:
        return Outcome(code, errors, f"exit code {code}")
    said = [line for line in errors.splitlines() if line.startswith(("presim: ", "Error: "))]
    if code == 2 and len(said) != 1:
        return Outcome(code, errors, f"{len(said)} sentences beside exit code 2")
    return Outcome(code, errors)


Attempt = tuple[str, Outcome | None]  # its seed; None: the file has nothing to attack


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A kind of file with its good inputs, which its verb takes."""

    kind: Kind
    good: Path
    place: Path  # of the file, within the inputs
    original: bytes

    def attempt(self, data: bytes, folder: Path) -> Outcome:
        """One call with a file's other content, in a fresh folder."""
        return attempt(self.kind, self.good, self.place, data, folder)


def prepare(kind: Kind, folder: Path) -> Prepared:
    """Make a kind's good inputs, and check that its verb takes them."""
    good = folder / "good"
    good.mkdir(parents=True)
    with contextlib.redirect_stdout(io.StringIO()):
        file = kind.make(good)
    prepared = Prepared(kind, good, file.relative_to(good), file.read_bytes())
    if kind.command.startswith(("serve ", "calibrate serving ")):
        _reuse_engines()
    _warm(kind, good, prepared.place, folder / "warm")
    check = prepared.attempt(prepared.original, folder / "check")
    if check.wrong or check.code not in (0, 4, 7):
        raise RuntimeError(f"the good {kind.name} is refused: {check.code} {check.wrong} {check.errors}")
    return prepared


def broken_calls(prepared: Prepared, numbers: Iterable[int], folder: Path) -> Iterator[Attempt]:
    """Break a kind's file by numbers, each always in the same way; yields the seed with the names of what was done."""
    for number in numbers:
        seed = f"{prepared.kind.name} {number}"
        data, names = mutate(prepared.original, seed)
        yield f"{seed} ({names})", prepared.attempt(data, folder)


def attack_calls(prepared: Prepared, attack: Attack, numbers: Iterable[int], folder: Path) -> Iterator[Attempt]:
    """Attack a kind's file by numbers, each always in the same way."""
    for number in numbers:
        seed = f"{attack.name} {number} on {prepared.kind.name}"
        data = attacked(prepared.original, attack, seed)
        is_changed = data is not None and data != prepared.original
        yield seed, prepared.attempt(data, folder) if is_changed and data is not None else None


def _warm(kind: Kind, good: Path, place: Path, folder: Path) -> None:
    """One good call here: forks inherit what it imports, compiles and reads, which takes most of a call's time."""
    shutil.copytree(good, folder / "in")
    (folder / "out").mkdir()
    kept = sys.stdout, sys.stderr
    with contextlib.chdir(folder):
        try:
            run_quietly(_call(kind, place), folder / "in")
        finally:
            sys.stdout, sys.stderr = kept
    shutil.rmtree(folder)


@functools.cache
def _reuse_engines() -> None:
    """Let forks take the engine that an earlier call built of equal inputs: its prices take two thirds of a call."""
    from presim.serving.steps import times

    build = times.build
    engines_by_inputs: dict[bytes, times.PricedEngine] = {}

    @functools.wraps(build)
    def build_once(*inputs: Any, **named_inputs: Any) -> times.PricedEngine:
        key = pickle.dumps((inputs, named_inputs))
        if key not in engines_by_inputs:
            engines_by_inputs[key] = build(*inputs, **named_inputs)
        return engines_by_inputs[key]

    times.build = build_once


def _call(kind: Kind, place: Path) -> Callable[[], int]:
    """What reads the file, as a function that returns an exit code."""
    read = kind.call
    if read is None:
        return lambda: main.run(kind.command.format(file=place).split())

    def answered() -> int:
        try:
            read(place)
        except PresimError as error:
            sys.stderr.write(f"presim: {error}\n")
            return 2
        return 0

    return answered


def attempt(kind: Kind, good: Path, place: Path, data: bytes, folder: Path) -> Outcome:
    """One call with a file's other content; the folder is fresh and removed again."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder / "in")
    (folder / "out").mkdir()
    (folder / "in" / place).write_bytes(data)
    before = _files(folder / "in")
    outcome = forked(_call(kind, place), folder / "in")
    wrong = outcome.wrong or _half_written(folder / "out", outcome.code)
    wrong = wrong or _changed(before, _files(folder / "in"), kind)
    shutil.rmtree(folder)
    return dataclasses.replace(outcome, wrong=wrong)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _changed(before: dict[str, bytes], after: dict[str, bytes], kind: Kind) -> str:
    if kind.name == "study":  # it is written to
        return ""
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return f"inputs changed: {', '.join(changed)}" if changed else ""


def _half_written(folder: Path, code: int) -> str:
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        if path.name.startswith(".") or path.suffix in (".tmp", ".part"):
            return f"temporary file left: {path.name}"
        if not path.stat().st_size:
            return f"empty output: {path.name}"
        if path.suffix == ".json":
            try:
                json.loads(path.read_text())
            except ValueError:
                return f"output is no JSON: {path.name}"
        if code == 2 and path.suffix in (".json", ".html", ".svg"):
            return f"output beside exit code 2: {path.name}"
    return ""
