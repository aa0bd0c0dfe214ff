"""The reliability campaign: broken files and wrong command lines, and how the verbs take them.

    python validation/reliability.py --files 500 --lines 200 --out validation/results/reliability.md

Every kind of file that presim reads is broken ``--files`` times, as editors, disks and other tools break files, and
handed to the verb that reads it; ``--lines`` command lines are wrong in a word or two. A call ends well if it leaves
with a documented exit code, no traceback, one sentence for what cannot be used, and every output whole or absent,
within two minutes of processor time and 6 GiB of address space. A sample runs in `tests/reliability`, with kills and
odd surroundings.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError
from presim.files import check_writable, write_file

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.reliability import command_lines
from support.reliability.campaign import Outcome, broken_calls, called
from support.reliability.kinds import KINDS, Kind

_HEAD = """# Reliability: broken files and wrong command lines

{files} broken files of each of {kinds} kinds and {lines} wrong command lines; {wrong} of {calls:,} calls ended badly:
with a traceback, an undocumented exit code, no sentence or several, a half-written output, more than two minutes of
processor time, or more than 6 GiB. Made by `validation/reliability.py`; a sample runs in `tests/reliability`, with
kills at changes of the file system, full disks, no home, little memory and clocks that jump.

| input | verb | calls | refused with a sentence | usable all the same | ended badly |
|---|---|---:|---:|---:|---|
"""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=500, help="broken files of each kind")
    parser.add_argument("--lines", type=int, default=200, help="wrong command lines")
    parser.add_argument("--kind", action="append", help="only this kind of file; repeatable")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    check_writable(arguments.out)
    chosen = [kind for kind in KINDS if not arguments.kind or kind.name in arguments.kind]
    if not chosen:
        raise InputError(f"no kind is called {arguments.kind[0]!r}: there are {', '.join(kind.name for kind in KINDS)}")
    rows = [_row(kind.name, kind.command.split()[0], _broken(kind, arguments.files)) for kind in chosen]
    if not arguments.kind:
        rows.append(_row("wrong command lines", "all", _lines(arguments.lines)))
    bad = sum(wrong for _, _, wrong in rows)
    calls = sum(count for _, count, _ in rows)
    head = _HEAD.format(files=arguments.files, kinds=len(chosen), lines=arguments.lines, wrong=bad, calls=calls)
    write_file(arguments.out, (head + "".join(text for text, _, _ in rows)).encode())
    print(f"{arguments.out}: {bad} of {calls:,} calls ended badly")


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


def _row(name: str, verb: str, outcomes: list[Outcome]) -> tuple[str, int, int]:
    """A line of the table, its calls, and how many of them ended badly."""
    wrong = collections.Counter(outcome.wrong for outcome in outcomes if outcome.wrong)
    refused = sum(outcome.code == 2 and not outcome.wrong for outcome in outcomes)
    usable = len(outcomes) - refused - sum(wrong.values())
    told = ", ".join(f"{count} ({reason})" for reason, count in sorted(wrong.items())) or "0"
    text = f"| {name} | `{verb}` | {len(outcomes)} | {refused} | {usable} | {told} |\n"
    print(text, end="", file=sys.stderr)
    return text, len(outcomes), sum(wrong.values())


if __name__ == "__main__":
    with sentences():
        main()
