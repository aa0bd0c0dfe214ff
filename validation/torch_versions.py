"""Runs the examples under each supported version of PyTorch. To be run by hand before a release.

    python validation/torch_versions.py FOLDER [--versions 2.11.0 2.12.1 2.13.0 2.14.0 2.15.0] [--presim WHEEL]

FOLDER gets one virtual environment (about 2 GB). Each version is installed into it in turn, with presim built from this
checkout, or from an sdist or a wheel. Prints a table with one row per version and example: exit code, step time and
peak memory. Exit code 1: an example wrote no result.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import check_folder

ROOT = Path(__file__).parent.parent
EXAMPLES = (
    ("llama_fsdp2.py", "--gpu", "h100-sxm", "--nodes", "16"),
    ("gpt2_ddp.py", "--gpu", "h100-sxm", "--world-size", "8"),
    ("vit_huge.py", "--gpu", "h100-sxm"),
    ("out_of_memory.py", "--gpu", "a100-40gb-sxm"),
)


def pip(python: Path, *args: str) -> None:
    """Install quietly.

    Raises:
        InputError: pip cannot.
    """
    command = [python, "-m", "pip", "install", "--quiet", *args]
    ended = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        why = (ended.stderr.strip().splitlines() or ["it does not say why"])[-1]
        raise InputError(f"pip cannot install {' '.join(args)} into {python.parent.parent}: {why}")


def prepare(folder: Path, presim: Path) -> Path:
    """Create a virtual environment with presim and return its python. ``presim``: a checkout, an sdist or a wheel."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        pip(python, "-r", str(ROOT / "requirements" / "torch-needs.txt"), "transformers")
    pip(python, str(presim))
    return python


def run(python: Path, script: str, *options: str) -> str:
    """Run one example and return the cells of its row."""
    out = python.parent.parent / "result.json"
    out.unlink(missing_ok=True)
    command = [python.parent / "presim", "run", "--quiet", "--json", out, *options, ROOT / "examples" / script]
    process = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if not out.exists():
        return f"failed: {(process.stderr.strip().splitlines() or ['silently'])[-1][:100]} | | |"
    result = json.loads(out.read_text())
    unmodelled = [text.split(" was called")[0] for text in result["not_modelled"] if "no semantics" in text]
    peak = result["memory"]["peak_allocated_bytes"] / 2**30
    return f"{result['exit']} | {result['step_time_s'] or 0:.4f} | {peak:.3f} | {', '.join(unmodelled) or '-'} |"


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--versions", nargs="+", default=["2.11.0", "2.12.1", "2.13.0", "2.14.0", "2.15.0"])
    parser.add_argument("--presim", type=Path, default=ROOT, metavar="WHEEL")
    options = parser.parse_args()
    check_folder(options.folder)
    python = prepare(options.folder, options.presim)
    failures = 0
    columns = ("PyTorch", "example", "exit", "step, s", "peak allocated, GiB", "calls without semantics")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for version in options.versions:
        pip(python, "--no-deps", f"torch==={version}")
        for script, *arguments in EXAMPLES:
            cells = run(python, script, *arguments)
            failures += cells.startswith("failed")
            print(f"| {version} | {script} | {cells}", flush=True)
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    with sentences():
        main()
