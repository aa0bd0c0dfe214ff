"""Attacks on the places of files: links in loops, long names, deleted folders, few descriptors, devices."""

from __future__ import annotations

import os
import random
import resource
import shlex
from pathlib import Path

from presim.cli import main
from support.reliability.campaign import Outcome, forked
from support.reliability.command_lines import GOOD

_OUTPUTS = (
    "--json",
    "--html",
    "--out",
    "--plot",
    "--report",
    "--junit",
    "--markdown",
    "--save",
    "--kineto",
    "--chakra",
    "--perfetto",
)
_EXTRA = (
    "simulate job --perfetto p.pftrace -q",
    "simulate job --kineto k -q",
    "simulate job --chakra k -q",
    "report r0.json --html h.html",
)


def prepare(folder: Path) -> None:
    """The odd places beside what `command_lines.prepare` makes."""
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("missing/target")
    (folder / "file").write_text("x")
    (folder / "empty").mkdir()
    (folder / "locked").mkdir(mode=0o500)
    os.mkfifo(folder / "pipe")


def call(number: int, folder: Path) -> tuple[str, Outcome]:
    """What a number stands for, and how it ended."""
    chance = random.Random(f"place {number}")
    words = chance.choice((*GOOD, *_EXTRA)).split()
    how = number % 4
    if how == 0:
        limit = chance.choice((8, 16, 24, 32, 48, 63, 64))
        return f"{shlex.join(words)} with {limit} descriptors", forked(lambda: _with_descriptors(words, limit), folder)
    if how == 1:
        return f"{shlex.join(words)} in a deleted folder", forked(lambda: _in_deleted_folder(words), folder)
    words = _moved(words, chance)
    return shlex.join(words)[:300], forked(lambda: main.run(list(words)), folder)


def _moved(words: list[str], chance: random.Random) -> list[str]:
    """A file of the line is at an odd place: an output, or any input."""
    odd = (
        "loop", "loop/x", "dangling", "file/x", "a" * 300, "b/" * 3000, "c" * 70_000, "empty", "locked/x", "/dev/full",
        "/proc/self/mem", "", ".", "a\0b", "\udcff", "-", "~", "missing/x", "/dev/null", "n" * 255, "n" * 240,
    )  # fmt: skip
    outputs = [place + 1 for place, word in enumerate(words[:-1]) if word in _OUTPUTS]
    inputs = [
        place
        for place, word in enumerate(words[1:], 1)
        if word in ("job", "c.toml", "r0.json", "budgets.toml", "cases.csv", "bench.json")
        or word.startswith("missing.")
    ]
    places = (outputs or inputs) if chance.random() < 0.5 else (inputs or outputs)
    if places:
        words[chance.choice(places)] = chance.choice(odd)
    return words


def _with_descriptors(words: list[str], limit: int) -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    return main.run(list(words))


def _in_deleted_folder(words: list[str]) -> int:
    here = Path.cwd()
    folder = here / f"deleted-{os.getpid()}"
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()
    return main.run([str(here / word) if word in ("job", "c.toml", "r0.json") else word for word in words])
