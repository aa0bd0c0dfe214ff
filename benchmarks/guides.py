"""Runs the commands of the guides and prints how each ended.

    python benchmarks/guides.py [PAGE...]      # of docs/guide, without .md; all unless named

Commands with placeholders (``train.py``, ``DIR``), ``make`` and ``pip`` are skipped. Each command has ten minutes.
presim must be on the path, in a checkout after ``make frameworks``; other requirements of a page must be installed
before.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide"
LIMIT_S = 600
_PLACEHOLDER = re.compile(r"\btrain\.py|\bDIR\b|…")
_FIGURES = re.compile(r"^(first step|step time).*\n(?P<time>\S+ \S+) .*?(?P<memory>[\d.]+ of [\d.]+ GiB)", re.MULTILINE)


def commands(page: Path) -> Iterator[str]:
    """The commands in a page's code blocks (lines with a prompt), each joined into one line."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        for line in re.findall(r"^\$ (.*)$", block.replace("\\\n", " "), re.MULTILINE):
            command = " ".join(line.partition(" #")[0].split())
            if ("presim " in command or command.startswith("python ")) and not _PLACEHOLDER.search(command):
                yield command


def run(command: str) -> tuple[str, str, str]:
    """How a command ended, with the step time and memory in its report."""
    try:
        done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"stopped after {LIMIT_S} s", "", ""
    return f"exit code {done.returncode}", *figures(done.stdout)


def figures(report: str) -> tuple[str, str]:
    """Step time and memory in a report; empty if it shows none."""
    found = _FIGURES.search(report)
    return (found["time"], found["memory"]) if found else ("", "")


def main() -> None:
    """Print one row per command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    known = sorted(page.stem for page in GUIDE.glob("*.md"))
    pages = parser.parse_args().pages or known
    if unknown := set(pages) - set(known):
        parser.error(f"there is no page {min(unknown)}; there are {', '.join(known)}")
    if shutil.which("presim") is None:
        raise InputError("presim is not on the path; source .venv/bin/activate puts it there")
    print("| command | ended with | step time | memory |\n|---|---|---|---|")
    for page in pages:
        for command in commands(GUIDE / f"{page}.md"):
            print(f"| `{command}` | {' | '.join(run(command))} |", flush=True)


if __name__ == "__main__":
    with sentences():
        main()
