"""The reliability campaign: broken files and wrong command lines, and how the verbs take them.

    python validation/reliability.py --files 500 --lines 500 --out validation/results/reliability.md --seconds 240

With ``--seconds`` no further kind is begun after that time; the same call goes on with the kinds that the table lacks.
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
from collections.abc import Sequence
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError
from presim.files import check_writable, write_file

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.reliability import command_lines
from support.reliability.campaign import Outcome, broken_calls, called
from support.reliability.kind import Kind
from support.reliability.kinds import KINDS

_LINES = "wrong command lines"
_HEAD = """# Reliability: broken files and wrong command lines

{files} broken files of each of {kinds} kinds and {lines} wrong command lines; {wrong} of {calls:,} calls ended badly:
with a traceback, an undocumented exit code, no sentence or several, a half-written output, more than two minutes of
processor time, or more than 6 GiB. Made on {date} on {machine} by `validation/reliability.py`; a sample runs in
`tests/reliability`, with kills at changes of the file system, full disks, no home, little memory and clocks that jump.

| input | verb | calls | refused with a sentence | usable all the same | ended badly |
|---|---|---:|---:|---:|---|
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    text: str
    calls: int
    wrong: int  # that ended badly


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=500, help="broken files of each kind")
    parser.add_argument("--lines", type=int, default=200, help="wrong command lines")
    parser.add_argument("--kind", action="append", help="only this kind of file; repeatable")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further kind is begun after so long")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    check_writable(arguments.out)
    chosen = [kind for kind in KINDS if not arguments.kind or kind.name in arguments.kind]
    if not chosen:
        raise InputError(f"no kind is called {arguments.kind[0]!r}: there are {', '.join(kind.name for kind in KINDS)}")
    wanted = {kind.name: arguments.files for kind in chosen} | ({} if arguments.kind else {_LINES: arguments.lines})
    rows = {name: row for name, row in _kept(arguments.out).items() if row.calls == wanted.get(name)}
    begun = time.monotonic()
    for name in wanted:
        if name in rows or time.monotonic() - begun > arguments.seconds:
            continue
        kind = next((kind for kind in chosen if kind.name == name), None)
        outcomes = _broken(kind, arguments.files) if kind else _lines(arguments.lines)
        rows[name] = _row(name, kind.command.split()[0] if kind else "all", outcomes)
        _write(arguments.out, [rows[name] for name in wanted if name in rows])
    left = [name for name in wanted if name not in rows]
    bad, calls = sum(row.wrong for row in rows.values()), sum(row.calls for row in rows.values())
    print(f"{arguments.out}: {bad} of {calls:,} calls ended badly; {len(left)} kinds are left")


def _write(path: Path, rows: Sequence[Row]) -> None:
    kinds = [row for row in rows if row.name != _LINES]
    head = _HEAD.format(
        files=kinds[0].calls if kinds else 0,
        kinds=len(kinds),
        lines=sum(row.calls for row in rows) - sum(row.calls for row in kinds),
        wrong=sum(row.wrong for row in rows),
        calls=sum(row.calls for row in rows),
        date=datetime.date.today().isoformat(),
        machine=f"{os.cpu_count()} cores of {_processor()}",
    )
    write_file(path, (head + "".join(row.text for row in rows)).encode())


def _processor() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else "an unnamed processor"


def _kept(path: Path) -> dict[str, Row]:
    """The rows of an earlier call; of kinds of which a call ended badly none, so that they run again."""
    if not path.exists():
        return {}
    lines = re.finditer(r"^\| (.+?) \| `(\w+)` \| (\d+) \| \d+ \| \d+ \| 0 \|$", path.read_text(), re.MULTILINE)
    return {line[1]: Row(line[1], f"{line[0]}\n", int(line[3]), 0) for line in lines}


def _broken(kind: Kind, count: int) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for what, outcome in broken_calls(kind, count, Path(folder) / "kind"):
            found.append(outcome)
            if outcome.wrong:
                print(f"{what}: {outcome.wrong}", file=sys.stderr)
        return found


def _lines(count: int) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        command_lines.prepare(Path(folder))
        found = []
        for number in range(count):
            words = command_lines.wrong(number)
            found.append(called(words, Path(folder)))
            if found[-1].wrong:
                print(f"{words}: {found[-1].wrong}", file=sys.stderr)
        return found


def _row(name: str, verb: str, outcomes: list[Outcome]) -> Row:
    """The line of the table."""
    wrong = collections.Counter(outcome.wrong for outcome in outcomes if outcome.wrong)
    refused = sum(outcome.code == 2 and not outcome.wrong for outcome in outcomes)
    usable = len(outcomes) - refused - sum(wrong.values())
    told = ", ".join(f"{count} ({reason})" for reason, count in sorted(wrong.items())) or "0"
    text = f"| {name} | `{verb}` | {len(outcomes)} | {refused} | {usable} | {told} |\n"
    print(text, end="", file=sys.stderr)
    return Row(name, text, len(outcomes), sum(wrong.values()))


if __name__ == "__main__":
    with sentences():
        main()
