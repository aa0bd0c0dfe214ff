"""Kills and ends every verb that writes at random moments, and checks what it leaves behind.

    python validation/kills.py --points 20 --out validation/results/kills.md --seconds 240

With ``--seconds`` no further point is tried after that time; the same call goes on where the table ends. A call that
SIGKILL ends must leave its inputs as they were and each output whole or absent, and the next call must complete the
rest. A call that Ctrl-C or SIGTERM ends must besides exit with 130 or 143 and one sentence, and leave no temporary
file and no process.
A sample runs in `tests/reliability`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import datetime
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from presim.cli import main as command
from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import check_writable, write_file

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.reliability.campaign import run_quietly
from support.reliability.signals import BEFORE_PRESIM, Undisturbed, judged, undisturbed
from support.reliability.writing_verbs import VERBS, Writing, prepared

_SIGNALS = {"kill -9": signal.SIGKILL, "Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}
_HEAD = """# Kills, Ctrl-C and SIGTERM

Each of {verbs} verbs that write was ended at {points} random moments by SIGKILL, by Ctrl-C and by SIGTERM; {wrong} of
{calls} calls ended badly. After each signal, inputs are unchanged and each output is whole or absent, or after Ctrl-C
and SIGTERM says that it is partial (`search`, `deploy`, `validate`). The next call
keeps finished trials and cases, completes the rest, and writes the bytes of an undisturbed call (`run` measures host
time, so its outputs are only read back). Ctrl-C also gives exit code 130, SIGTERM 143, and both one sentence; they
leave no temporary file and no process. SIGKILL strikes a fork that has imported presim. Other signals reach a process
from its first millisecond: in the first tenth of a second Python itself starts, and ends as every Python program does;
nothing has been written then.
Seconds are those of an undisturbed call on a busy machine. Made on {date} on {machine} by `validation/kills.py`.

| verb | signal | seconds of a call | points | in Python's start | ended badly |
|---|---|---:|---:|---:|---|
"""


@dataclasses.dataclass
class Row:
    """A line of the table."""

    verb: str
    signal: str
    seconds: float = 0.0
    well: int = 0
    early: int = 0  # ended while Python itself started, before it ran a line of presim's
    wrong: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # by what was wrong

    @property
    def points(self) -> int:
        """Number of points that were tried."""
        return self.well + self.early + self.wrong.total()

    def __str__(self) -> str:
        told = ", ".join(f"{count} ({reason})" for reason, count in sorted(self.wrong.items())) or "0"
        return f"| {self.verb} | {self.signal} | {self.seconds:.1f} | {self.points} | {self.early} | {told} |\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20, help="moments for each verb and signal")
    parser.add_argument("--verb", action="append", help="only this verb; repeatable")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further point is tried after so long")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    check_writable(arguments.out)
    chosen = [verb for verb in VERBS if not arguments.verb or verb.name in arguments.verb]
    if not chosen:
        raise InputError(f"no verb is called {arguments.verb[0]!r}: there are {', '.join(verb.name for verb in VERBS)}")
    rows = {(row.verb, row.signal): row for row in _kept(arguments.out)}
    until = time.monotonic() + arguments.seconds
    for verb in chosen:
        _tried(verb, rows, arguments.points, until)
        _write(arguments.out, [rows[key] for key in _order() if key in rows])
        if time.monotonic() > until:
            break
    left = sum((key := (verb.name, name)) not in rows or rows[key].points < arguments.points
               for verb in chosen for name in _SIGNALS)  # fmt: skip
    bad = sum(row.wrong.total() for row in rows.values())
    print(
        f"{arguments.out}: {bad} of {sum(row.points for row in rows.values())} calls ended badly; {left} rows are left"
    )


def _order() -> list[tuple[str, str]]:
    return [(verb.name, name) for verb in VERBS for name in _SIGNALS]


def _tried(verb: Writing, rows: dict[tuple[str, str], Row], points: int, until: float) -> None:
    """Try the missing points of a verb until the time ends; a row with a bad end is tried from its first point."""
    with tempfile.TemporaryDirectory() as folder:
        inputs: Path | None = None
        for name, number in _SIGNALS.items():
            row = rows.get((verb.name, name))
            if row is None or row.wrong:
                row = Row(verb.name, name)
            if row.points >= points or time.monotonic() > until:
                continue
            inputs = inputs or prepared(verb, Path(folder) / "inputs")
            whole = _undisturbed(verb, inputs, Path(folder), number)
            rows[verb.name, name] = row
            row.seconds = whole.seconds
            _go_on(verb, row, inputs, whole, points, until)
            print(row, end="", file=sys.stderr)


def _undisturbed(verb: Writing, inputs: Path, folder: Path, number: int) -> Undisturbed:
    """A first call fills caches, and its modules are inherited by forks."""
    fork = number == signal.SIGKILL
    if fork:
        _warm(verb, inputs, folder / "warm")
    return undisturbed(verb, inputs, folder / f"whole-{number}", fork=fork)


def _warm(verb: Writing, inputs: Path, folder: Path) -> None:
    shutil.copytree(inputs, folder)
    kept = sys.stdout, sys.stderr
    with contextlib.chdir(folder):
        try:
            run_quietly(lambda: command.run(verb.command.split()), folder)
        finally:
            sys.stdout, sys.stderr = kept


def _go_on(verb: Writing, row: Row, inputs: Path, whole: Undisturbed, points: int, until: float) -> None:
    for point in range(row.points, points):
        moment = random.Random(f"{verb.name} {row.signal} {point}").random() * whole.seconds
        wrong = judged(verb, inputs, inputs.parent / "ended", _SIGNALS[row.signal], moment, whole)
        if wrong == BEFORE_PRESIM:
            row.early += 1
        elif wrong:
            row.wrong[wrong] += 1
            print(f"{verb.name}, {row.signal} after {moment:.2f} s: {wrong}", file=sys.stderr)
        else:
            row.well += 1
        if time.monotonic() > until:
            return


def _write(path: Path, rows: Sequence[Row]) -> None:
    counts = sorted({row.points for row in rows})
    head = _HEAD.format(
        verbs=len({row.verb for row in rows}),
        points=counts[0] if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else 0,
        wrong=sum(row.wrong.total() for row in rows),
        calls=sum(row.points for row in rows),
        date=datetime.date.today().isoformat(),
        machine=f"{os.cpu_count()} cores of {_processor()}",
    )
    write_file(path, (head + "".join(map(str, rows))).encode())


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else "an unnamed processor"


def _kept(path: Path) -> list[Row]:
    """The rows of an earlier run."""
    if not path.exists():
        return []
    lines = re.finditer(r"^\| (.+?) \| (.+?) \| ([\d.]+) \| (\d+) \| (\d+) \| (.+) \|$", path.read_text(), re.MULTILINE)
    rows = []
    for line in lines:
        wrong = {found[2]: int(found[1]) for found in re.finditer(r"(\d+) \((.+?)\)(?:, |$)", line[6])}
        early = int(line[5])
        well = int(line[4]) - early - sum(wrong.values())
        rows.append(Row(line[1], line[2], float(line[3]), well, early, collections.Counter(wrong)))
    return rows


if __name__ == "__main__":
    with sentences():
        main()
