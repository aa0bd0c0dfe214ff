"""The reliability campaign: tests the verbs with damaged files and wrong command lines.

    python validation/reliability.py --files 500 --lines 500 --out validation/results/reliability.md --seconds 240

With ``--seconds`` no further file is broken after that time; the same call goes on where the table ends.
Every kind of file that presim reads is broken ``--files`` times, as editors, disks and other tools break files, and
handed to the verb that reads it; ``--lines`` command lines are wrong in a word or two. A call ends well if it leaves
with a documented exit code, no traceback, one sentence for what cannot be used, and every output whole or absent,
within two minutes of processor time and 6 GiB of address space. A sample runs in `tests/reliability`, with kills and
odd surroundings.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import ExitCode, InputError
from presim.files import check_writable, write_file

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.reliability import command_lines
from support.reliability.campaign import Outcome, broken_calls, called
from support.reliability.kinds import KINDS

_LINES = "wrong command lines"
_HEAD = """# Reliability: broken files and wrong command lines

{files} broken files of each of {kinds} kinds and {lines} wrong command lines; {wrong} of {calls:,} calls ended badly:
with a traceback, an undocumented exit code, no sentence or several, a half-written output, more than two minutes of
processor time, or more than 6 GiB. Made on {date} on {machine} by `validation/reliability.py`. A kind of which a call
ended badly was mended and tried again from its first file. A sample runs in `tests/reliability`, with kills at changes
of the file system, full disks, no home, little memory and clocks that jump.

| input | verb | calls | refused with a sentence | usable all the same | ended badly |
|---|---|---:|---:|---:|---|
"""


@dataclasses.dataclass
class Row:
    """A line of the table."""

    name: str
    verb: str
    refused: int = 0
    usable: int = 0
    wrong: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # by what was wrong

    @property
    def calls(self) -> int:
        """Number of calls. They are numbered from 0, so this is the number of the next one."""
        return self.refused + self.usable + self.wrong.total()

    def add(self, outcome: Outcome) -> None:
        """Count a call."""
        if outcome.wrong:
            self.wrong[outcome.wrong] += 1
        elif outcome.code == ExitCode.UNUSABLE:
            self.refused += 1
        else:
            self.usable += 1

    def __str__(self) -> str:
        told = ", ".join(f"{count} ({reason})" for reason, count in sorted(self.wrong.items())) or "0"
        return f"| {self.name} | `{self.verb}` | {self.calls} | {self.refused} | {self.usable} | {told} |\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=500, help="broken files of each kind")
    parser.add_argument("--lines", type=int, default=200, help="wrong command lines")
    parser.add_argument("--kind", action="append", help="only this kind of file; repeatable")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further call is begun after so long")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    check_writable(arguments.out)
    chosen = [kind for kind in KINDS if not arguments.kind or kind.name in arguments.kind]
    if not chosen:
        raise InputError(f"no kind is called {arguments.kind[0]!r}: there are {', '.join(kind.name for kind in KINDS)}")
    wanted = {kind.name: arguments.files for kind in chosen} | ({} if arguments.kind else {_LINES: arguments.lines})
    rows = {row.name: row for row in _kept(arguments.out)}
    until = time.monotonic() + arguments.seconds
    for name, count in wanted.items():
        if time.monotonic() > until:
            break
        row = rows.get(name)
        if row is None or row.wrong:  # what ended badly is to be mended, and is tried from its first file again
            row = Row(name, next((kind.command.split()[0] for kind in KINDS if kind.name == name), "all"))
        if row.calls < count:
            rows[name] = row
            _go_on(row, count, until)
            print(row, end="", file=sys.stderr)
            _write(arguments.out, [rows[name] for name in _order() if name in rows])
    bad, calls = sum(row.wrong.total() for row in rows.values()), sum(row.calls for row in rows.values())
    left = sum(name not in rows or rows[name].calls < count for name, count in wanted.items())
    print(f"{arguments.out}: {bad} of {calls:,} calls ended badly; {left} kinds are left")


def _order() -> list[str]:
    return [*(kind.name for kind in KINDS), _LINES]


def _go_on(row: Row, count: int, until: float) -> None:
    """Make the missing calls of a row until the time ends."""
    with tempfile.TemporaryDirectory() as folder:
        for what, outcome in _calls(row, count, Path(folder)):
            row.add(outcome)
            if outcome.wrong:
                print(f"{what}: {outcome.wrong}", file=sys.stderr)
            if time.monotonic() > until:
                break


def _calls(row: Row, count: int, folder: Path) -> Iterator[tuple[str, Outcome]]:
    if row.name != _LINES:
        kind = next(kind for kind in KINDS if kind.name == row.name)
        yield from broken_calls(kind, count, folder / "kind", first=row.calls)
        return
    command_lines.prepare(folder)
    for number in range(row.calls, count):
        words = command_lines.wrong(number)
        yield str(words), called(words, folder)


def _write(path: Path, rows: Sequence[Row]) -> None:
    kinds = [row for row in rows if row.name != _LINES]
    head = _HEAD.format(
        files=_files(kinds),
        kinds=len(kinds),
        lines=sum(row.calls for row in rows) - sum(row.calls for row in kinds),
        wrong=sum(row.wrong.total() for row in rows),
        calls=sum(row.calls for row in rows),
        date=datetime.date.today().isoformat(),
        machine=f"{os.cpu_count()} cores of {_processor()}",
    )
    write_file(path, (head + "".join(map(str, rows))).encode())


def _files(rows: Sequence[Row]) -> str:
    counts = sorted({row.calls for row in rows})
    return str(counts[0]) if len(counts) == 1 else f"{min(counts, default=0)} to {max(counts, default=0)}"


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else "an unnamed processor"


def _kept(path: Path) -> list[Row]:
    """The rows of an earlier run."""
    if not path.exists():
        return []
    lines = re.finditer(r"^\| (.+?) \| `(\w+)` \| \d+ \| (\d+) \| (\d+) \| (.+) \|$", path.read_text(), re.MULTILINE)
    return [Row(line[1], line[2], int(line[3]), int(line[4]), _wrong(line[5])) for line in lines]


def _wrong(told: str) -> collections.Counter[str]:
    return collections.Counter({found[2]: int(found[1]) for found in re.finditer(r"(\d+) \((.+?)\)(?:, |$)", told)})


if __name__ == "__main__":
    with sentences():
        main()
