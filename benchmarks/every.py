"""Runs all benchmarks of whole commands and replaces their tables in benchmarks/results.

    python benchmarks/every.py [NAME...]      (make benchmarks)

The load of the machine at the start of each benchmark stands above its table. Text around the tables is written by hand
and kept.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from ran import failure

from presim.cli.script import sentences

HERE = Path(__file__).parent
ARGUMENTS = {  # of each benchmark, in the order in which they run
    "commands": ["--runs", "3"],
    "frameworks": ["--runs", "1"],
    "world_size": [],
    "differing_ranks": [],
    "capture_step": [],
    "learned_prices": [],
    "growth": ["--limit", "120"],
}
PACKAGES = ("torch", "torchtitan", "megatron-core", "transformer_engine", "transformers")
_MEASURED = re.compile(r"^20\d\d-\d\d-\d\d, .*?(?=\n\n)", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def machine() -> str:
    """Description of the machine and versions."""
    gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    installed = {one.name: one.version for one in importlib.metadata.distributions()}
    versions = ", ".join(f"{name} {installed[name]}" for name in PACKAGES if name in installed)
    return (
        f"{datetime.datetime.now(datetime.UTC).date()}, {os.cpu_count()}-core {platform.machine()} machine "
        f"(load {os.getloadavg()[0]:.1f} as it began),\n{gib} GiB, Python {platform.python_version()},\n{versions}."
    )


def put(text: str, measured: str, tables: list[str]) -> str:
    """A page of results with new tables and a new line about the machine."""
    fresh = iter(tables)
    text = _MEASURED.sub(lambda _: measured, text, count=1)
    return _TABLE.sub(lambda old: next(fresh, old.group()), text)


def run(command: list[str]) -> str:
    """Output of a benchmark, which is also shown while it runs."""
    printed = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            printed += line
    if process.returncode:
        raise failure(command, process.returncode)
    return printed


def main() -> None:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ARGUMENTS))
    names = parser.parse_args().names or list(ARGUMENTS)
    if unknown := set(names) - set(ARGUMENTS):
        parser.error(f"{min(unknown)} is none of {', '.join(ARGUMENTS)}; any other script is run by itself")
    for name in names:
        measured = machine()
        print(f"{name}: {measured}", flush=True)
        command = [sys.executable, str(HERE / f"{name}.py"), *ARGUMENTS[name]]
        printed = run(command)
        page = HERE / "results" / f"{name}.md"
        tables = _TABLE.findall(printed)
        if page.exists():
            page.write_text(put(page.read_text(), measured, tables))
        else:
            page.write_text(f"# {name}\n\n`python benchmarks/{name}.py`\n\n{measured}\n\n" + "\n".join(tables))


if __name__ == "__main__":
    with sentences():
        main()
