"""Compares the energy of whole pre-trainings with composed predictions.

    python validation/energy.py [--only ID] [--out PAGE.md]

`papers/energy.toml` has the published energy, tokens and GPU power of each run. The step of the same model is composed
(`presim compose`), and its joules a token and watts a GPU stand beside them. The published energy covers a whole
training with its restarts, checkpoints and slow phases; the prediction is of a step.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from presim.cli import main as command
from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import check_writable, write_file

FOLDER = Path(__file__).parent
_JOULES_PER_MWH = 3.6e9
_HEAD = """# Energy of whole trainings

Joules a token and watts a GPU of published pre-trainings on H100, beside a composed step of the same model. GPUs only,
without the rest of the node and cooling. Made on {date} by `validation/energy.py`.

| run | J a token, measured | predicted | error | W a GPU, measured | predicted | error | tokens/s a GPU, predicted |
|---|---:|---:|---:|---:|---:|---:|---:|
"""
_FOOT = """
The published energy includes restarts, checkpoints and evaluation, and the throughput of its trainer; a composed step
has none of that. The error of the watts is that of the power model; the rest of the error a token is throughput. The
range in brackets takes the lowest and highest power of every class of work.
"""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="one run of papers/energy.toml")
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "energy.md")
    arguments = parser.parse_args()
    check_writable(arguments.out)
    runs = tomllib.loads((FOLDER / "papers" / "energy.toml").read_text())
    if arguments.only and arguments.only not in runs:
        raise InputError(f"no run is called {arguments.only!r}: there are {', '.join(runs)}")
    chosen = {name: run for name, run in runs.items() if arguments.only in (None, name)}
    rows = [_row(name, run, _composed(run)) for name, run in chosen.items()]
    sources = "".join(f"- {name}: {run['source']}\n" for name, run in chosen.items())
    text = _HEAD.format(date=datetime.date.today().isoformat()) + "".join(rows) + _FOOT + "\n" + sources
    write_file(arguments.out, text.encode())
    print(text)


def _composed(run: Mapping[str, Any]) -> dict[str, Any]:
    """The result of `presim compose`."""
    with tempfile.TemporaryDirectory() as folder:
        config, result = Path(folder, "config.json"), Path(folder, "result.json")
        config.write_text(json.dumps(run["config"]))
        options = {
            "--world-size": run["world_size"],
            "--seq": run["sequence"],
            "--global-batch": run["global_batch"],
            "--mbs": run["micro_batch"],
        }
        words = [str(word) for pair in options.items() for word in pair]
        code = command.run(["compose", str(config), "--gpu", "h100-sxm", *words, "--json", str(result), "-q"])
        if code:
            raise InputError(f"presim compose ends with {code}; a plan that fits is needed")
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def _row(name: str, run: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    energy = result["energy"]
    tokens = run["global_batch"] * run["sequence"] / run["world_size"]  # of a GPU and step
    low, middle, high = (energy[key] / tokens for key in ("joules_low", "joules", "joules_high"))
    measured = run["energy_MWh"] * _JOULES_PER_MWH / run["tokens"]
    watts = energy["watts"]
    return (
        f"| {name} | {measured:.3f} | {middle:.3f} ({low:.3f} to {high:.3f}) | {middle / measured - 1:+.0%} "
        f"| {run['watts']} | {watts:.0f} | {watts / run['watts'] - 1:+.0%} | {tokens / result['step_time_s']:,.0f} |\n"
    )


if __name__ == "__main__":
    with sentences():
        main()
