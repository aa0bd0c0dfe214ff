r"""The reliability campaign: tests the verbs with damaged files and wrong command lines.

    python validation/reliability.py --files 500 --lines 500 --attacks 2000 --out validation/results/reliability.md \
        --seconds 240

With ``--seconds`` no further file is broken after that time; the same call goes on where the table ends.
Every kind of file that presim reads is broken ``--files`` times, as editors, disks and other tools break files, and
handed to the verb that reads it; ``--lines`` command lines are wrong in a word or two. Each kind of attack (nesting,
digits, numbers at the edge of 64 bits, names, …) is made ``--attacks`` times on all kinds of files in turn, on every
numeric option, and on the places of files. A call ends well if it leaves
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import ExitCode, InputError
from presim.system.files import check_writable, write_file

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.reliability import command_lines, option_attacks, place_attacks
from support.reliability.attacks import ATTACKS
from support.reliability.campaign import Attempt, Outcome, attack_calls, broken_calls, called, prepare
from support.reliability.kinds import KINDS

_LINES = "wrong command lines"
_OPTIONS = "attack: numeric options"
_PLACES = "attack: places of files"
_ATTACKS = {f"attack: {attack.name}": attack for attack in ATTACKS}
_BROKEN_A_ROUND = 100  # files of each kind, then of the next; an unfinished campaign has tried all kinds alike
_ATTACKS_A_KIND = 10
_HEAD = """# Reliability: broken files and wrong command lines

{files} broken files of each of {kinds} kinds and {lines} wrong command lines; {wrong} of {calls:,} calls ended badly:
with a traceback, an undocumented exit code, no sentence or several, a half-written output, more than two minutes of
processor time, or more than 6 GiB. Made on {made} by `validation/reliability.py`. A kind of which a call
ended badly was mended and tried again from its first file. A sample runs in `tests/reliability`, with kills at changes
of the file system, full disks, no home, little memory and clocks that jump.

| input | verb | calls | refused with a sentence | usable all the same | ended badly |
|---|---|---:|---:|---:|---|
"""
_ATTACKED = """
## Attacks

Each kind of attack on the text of all kinds of files in turn (files without a number, name or line to attack are left
out), on every numeric option with the numbers at and beyond its bounds, and on the places of files: links in loops,
long names, deleted folders, few descriptors. {wrong} of {calls:,} calls ended badly. Made on {made}.

| attack | verb | calls | refused with a sentence | usable all the same | ended badly |
|---|---|---:|---:|---:|---|
"""


@dataclasses.dataclass
class Row:
    """A line of the table."""

    name: str
    verb: str
    refused: int = 0
    usable: int = 0
    left_out: int = 0  # numbers whose file has nothing to attack
    wrong: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # by what was wrong

    @property
    def calls(self) -> int:
        """Number of calls."""
        return self.refused + self.usable + self.wrong.total()

    @property
    def number(self) -> int:
        """The next call's. They are numbered from 0."""
        return self.calls + self.left_out

    def add(self, outcome: Outcome | None) -> None:
        """Count a call; None: there was nothing to attack."""
        if outcome is None:
            self.left_out += 1
        elif outcome.wrong:
            self.wrong[outcome.wrong] += 1
        elif outcome.code == ExitCode.UNUSABLE:
            self.refused += 1
        else:
            self.usable += 1

    def __str__(self) -> str:
        told = ", ".join(f"{count} ({reason})" for reason, count in sorted(self.wrong.items())) or "0"
        left = f" <!-- {self.left_out} left out -->" if self.left_out else ""
        return f"| {self.name} | `{self.verb}` | {self.calls} | {self.refused} | {self.usable} | {told} |{left}\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=500, help="broken files of each kind")
    parser.add_argument("--lines", type=int, default=200, help="wrong command lines")
    parser.add_argument("--attacks", type=int, default=100, help="calls of each kind of attack")
    parser.add_argument("--kind", action="append", help="only this kind of file or attack; repeatable")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further call is begun after so long")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    check_writable(arguments.out)
    wanted = {kind.name: arguments.files for kind in KINDS} | {_LINES: arguments.lines}
    wanted |= dict.fromkeys((*_ATTACKS, _OPTIONS, _PLACES), arguments.attacks)
    if unknown := set(arguments.kind or ()) - set(wanted):
        raise InputError(f"no kind is called {min(unknown)!r}: there are {', '.join(wanted)}")
    wanted = {name: count for name, count in wanted.items() if not arguments.kind or name in arguments.kind}
    rows = {row.name: row for row in _kept(arguments.out)}
    until = time.monotonic() + arguments.seconds

    made_on = _made_on(arguments.out) if set(wanted) <= {*_ATTACKS, _OPTIONS, _PLACES} else ""

    def save() -> None:
        _write(
            arguments.out,
            made_on or _here_and_now(),
            [rows[name] for name in _order() if name in rows and rows[name].number],
        )

    for name in wanted:
        if name not in rows or rows[name].wrong:  # what ended badly is to be mended, and is tried from its first file
            rows[name] = Row(name, next((kind.command.split()[0] for kind in KINDS if kind.name == name), "all"))
    for most in range(_BROKEN_A_ROUND, max(wanted.values()) + _BROKEN_A_ROUND, _BROKEN_A_ROUND):
        for name, count in wanted.items():
            if name not in _ATTACKS and rows[name].number < min(count, most) and time.monotonic() < until:
                _go_on(rows[name], min(count, most), until)
                save()
    _attack([rows[name] for name in _ATTACKS if name in wanted], arguments.attacks, until, save)
    bad, calls = sum(row.wrong.total() for row in rows.values()), sum(row.calls for row in rows.values())
    left = sum(name not in rows or rows[name].number < count for name, count in wanted.items())
    print(f"{arguments.out}: {bad} of {calls:,} calls ended badly; {left} kinds are left")


def _order() -> list[str]:
    return [*(kind.name for kind in KINDS), _LINES, *_ATTACKS, _OPTIONS, _PLACES]


def _go_on(row: Row, count: int, until: float) -> None:
    """Make the missing calls of a row until the time ends."""
    with tempfile.TemporaryDirectory() as folder:
        _add(row, _calls(row, count, Path(folder)), until)


def _attack(rows: Sequence[Row], count: int, until: float, save: Callable[[], None]) -> None:
    """Make the missing attacks on files until the time ends.

    Numbers go around the kinds of files, a few on each, so that an unfinished row is of all kinds alike. Each kind is
    made once in a round for all attacks.
    """
    for begin in range(0, count, _ATTACKS_A_KIND):
        kind, end = KINDS[begin // _ATTACKS_A_KIND % len(KINDS)], min(begin + _ATTACKS_A_KIND, count)
        behind = [row for row in rows if row.number < end]
        if not behind or time.monotonic() > until:
            continue
        with tempfile.TemporaryDirectory() as folder:
            prepared = prepare(kind, Path(folder, "kind"))
            for row in behind:
                numbers = range(row.number, end)
                _add(row, attack_calls(prepared, _ATTACKS[row.name], numbers, Path(folder, "bad")), until)
        save()


def _add(row: Row, calls: Iterator[Attempt], until: float) -> None:
    for what, outcome in calls:
        row.add(outcome)
        if outcome is not None and outcome.wrong:
            print(f"{what}: {outcome.wrong}", file=sys.stderr)
        if time.monotonic() > until:
            break


def _calls(row: Row, count: int, folder: Path) -> Iterator[Attempt]:
    if row.name not in (_LINES, _OPTIONS, _PLACES):
        kind = next(kind for kind in KINDS if kind.name == row.name)
        yield from broken_calls(prepare(kind, folder / "kind"), range(row.calls, count), folder / "bad")
        return
    command_lines.prepare(folder)
    if row.name == _PLACES:
        place_attacks.prepare(folder)
        yield from (place_attacks.call(number, folder) for number in range(row.number, count))
        return
    line = command_lines.wrong if row.name == _LINES else option_attacks.line
    for number in range(row.number, count):
        words = line(number)
        yield " ".join(words)[:300], called(words, folder)


def _made_on(path: Path) -> str:
    """When and where broken files and command lines were tried: a call with attacks alone keeps that."""
    match = re.search(r"Made on (.+?) by `validation", path.read_text()) if path.exists() else None
    return match[1] if match else ""


def _here_and_now() -> str:
    return f"{datetime.date.today().isoformat()} on {os.cpu_count()} cores of {_processor()}"


def _write(path: Path, made: str, rows: Sequence[Row]) -> None:
    attacks = [row for row in rows if row.name.startswith("attack: ")]
    rows = [row for row in rows if row not in attacks]
    kinds = [row for row in rows if row.name != _LINES]
    head = _HEAD.format(
        files=_files(kinds),
        kinds=len(kinds),
        lines=sum(row.calls for row in rows) - sum(row.calls for row in kinds),
        wrong=sum(row.wrong.total() for row in rows),
        calls=sum(row.calls for row in rows),
        made=made,
    )
    text = head + "".join(map(str, rows))
    if attacks:
        wrong, calls = sum(row.wrong.total() for row in attacks), sum(row.calls for row in attacks)
        text += _ATTACKED.format(wrong=wrong, calls=calls, made=_here_and_now()) + "".join(map(str, attacks))
    write_file(path, text.encode())


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
    lines = re.finditer(
        r"^\| (.+?) \| `(\w+)` \| \d+ \| (\d+) \| (\d+) \| (.+) \|(?: <!-- (\d+) left out -->)?$",
        path.read_text(),
        re.MULTILINE,
    )
    return [Row(line[1], line[2], int(line[3]), int(line[4]), int(line[6] or 0), _wrong(line[5])) for line in lines]


def _wrong(told: str) -> collections.Counter[str]:
    return collections.Counter({found[2]: int(found[1]) for found in re.finditer(r"(\d+) \((.+?)\)(?:, |$)", told)})


if __name__ == "__main__":
    with sentences():
        main()
