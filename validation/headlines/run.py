"""Runs the main experiments of a paper and writes the published figures beside presim's, with presim's time.

    python validation/headlines/run.py torchsim [--out validation/results/headlines.md]

The paper is torchsim, maya, phantora, echo, charon, or all. Experiments are in papers.toml; one that cannot be
reproduced says what is missing. All of them take a few minutes on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from presim.cli import main as presim
from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import (
    check_writable,
    convert,
    decode_foreign_json,
    decode_toml,
    read_bytes,
    read_text,
    write_file,
)
from presim.units import GIB

PAPERS = ("torchsim", "maya", "phantora", "echo", "charon")
_UNITS = {"step_time_s": "s", "allocated_GiB": "GiB", "reserved_GiB": "GiB"}
_HEAD = """# Headline experiments of five papers

`python validation/headlines/run.py all --out validation/results/headlines.md` wrote this page. Errors are predicted /
measured - 1. Seconds are CPU time of presim on one machine, without the start of Python; graphs of models come from
presim's cache where they were traced before.

| paper | experiment | published | presim | error | CPU s | remark |
|---|---|---|---|---:|---:|---|
"""


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An experiment of a paper: a command of presim, or why there is none."""

    paper: str
    name: str
    words: str = ""
    published: dict[str, float] = {}
    missing: str = ""
    remark: str = ""


def experiments(paper: str) -> list[Experiment]:
    """The experiments of a paper, or of all."""
    text = read_text(Path(__file__).with_name("papers.toml"), "check out the repository again")
    rows = convert(decode_toml(text)["experiment"], list[Experiment])
    return [row for row in rows if paper in ("all", row.paper)]


def figures(words: str) -> tuple[dict[str, float], float]:
    """Step time and memory that a command of presim predicts, and its CPU time in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        start = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            code = presim.run([*shlex.split(words), "--json", str(path), "-q"])
        spent_s = time.process_time() - start
        if not path.is_file():
            raise InputError(f"`presim {words}` ended with exit code {code} and left no result")
        result: Any = decode_foreign_json(read_bytes(path, "run it again"))
    memory = result["memory"]
    values = {
        "step_time_s": result["step_time_s"],
        "allocated_GiB": memory["peak_allocated_bytes"] / GIB,
        "reserved_GiB": memory["peak_reserved_bytes"] / GIB,
    }
    return values, spent_s


def line(experiment: Experiment) -> str:
    """An experiment as a row of the page."""
    start = f"| {experiment.paper} | {experiment.name}"
    if experiment.missing:
        return f"{start} | | | | | not here: {experiment.missing} |"
    values, spent_s = figures(experiment.words)
    shown = experiment.published or dict.fromkeys(_UNITS)
    published = ", ".join(f"{value:g} {_UNITS[name]}" for name, value in experiment.published.items())
    predicted = ", ".join(f"{values[name]:.4g} {_UNITS[name]}" for name in shown)
    errors = ", ".join(f"{values[name] / value - 1:+.1%}" for name, value in experiment.published.items())
    remark = f"{experiment.remark}; " if experiment.remark else ""
    return f"{start} | {published} | {predicted} | {errors} | {spent_s:.1f} | {remark}`presim {experiment.words}` |"


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", metavar="PAPER")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.paper not in (*PAPERS, "all"):
        raise InputError(f"no paper is called {options.paper!r}: there are {', '.join(PAPERS)}, and all")
    if options.out:
        check_writable(options.out)
    rows = []
    for experiment in experiments(options.paper):
        rows.append(line(experiment))
        print(rows[-1], flush=True)
    if options.out:
        write_file(options.out, (_HEAD + "\n".join(rows) + "\n").encode())


if __name__ == "__main__":
    with sentences():
        main()
