"""Benchmark of what presim adds to a script's own imports and host time, by framework.

    python benchmarks/added_time.py [ROW...]

Each row runs an example three times under ``presim run --ranks 0`` and its imports three times in a plain Python that
finds the emulated libraries; the least CPU time of each counts. ``torch._dynamo`` is among the imports, because every
optimizer imports it. Host time is what the capture recorded between calls to the device: the script's own Python, which
`presim run` cannot leave out. What the script does before its first call, such as building a model on the meta device,
counts as presim's, so the ratio is an upper bound.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import tempfile
from pathlib import Path

from ran import presim, run

import presim as package
from presim.cli.script import sentences
from presim.errors import InputError
from presim.trace import job_store

EXAMPLES = Path(__file__).parent.parent / "examples"
LIBRARIES = Path(package.__file__).parent / "shim" / "lib"
RUNS = 3
GOAL = 1.3
ROWS: dict[str, tuple[str, ...]] = {  # framework -> example, with its arguments
    "torch": ("gpt2_ddp.py",),
    "transformers": ("llama_fsdp2.py",),
    "transformers' Trainer": ("hf_trainer.py",),
    "DeepSpeed": ("deepspeed_zero.py",),
    "Lightning": ("lightning_gpt.py",),
    "Megatron-core": ("megatron_gpt.py",),
}


def import_s(script: Path) -> float:
    """CPU seconds of a plain Python that executes the imports at the top level of a script."""
    statements = ast.parse(script.read_text()).body
    imports = [ast.unparse(node) for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "\n".join([*imports, "import torch._dynamo"])]
    return min(run(command, env=environment).cpu_s for _ in range(RUNS))


def host_s(folder: Path) -> float:
    """Seconds that a captured script's host spent between calls to the device."""
    return sum(int(trace.columns["host_ns"].sum()) for trace in job_store.load(folder).traces.values()) / 1e9


def row(framework: str, folder: Path) -> str:
    """A row of the table."""
    script, *args = ROWS[framework]
    cluster = ["--gpu", "h100-sxm", "--nodes", "1", "--ranks", "0"]
    command: list[str | Path] = ["run", "--quiet", *cluster, "--save", folder / "job"]
    try:
        imported_s = import_s(EXAMPLES / script)
    except InputError:  # Transformer Engine and others ask for libraries of CUDA when they are imported
        return f"| {framework}, `{script}` | its imports need libraries of CUDA | | | |"
    captured_s = min(presim(*command, EXAMPLES / script, *args).cpu_s for _ in range(RUNS))
    script_s = host_s(folder / "job")
    ratio = captured_s / (imported_s + script_s)
    return f"| {framework}, `{script}` | {imported_s:.1f} | {script_s:.1f} | {captured_s:.1f} | {ratio:.2f} |"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)}; all where none is named")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"there is no row {min(unknown)}; there are {', '.join(ROWS)}")
    print(f"| framework | imports, CPU s | host, s | presim run, CPU s | ratio (goal {GOAL}) |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for framework in options.rows or ROWS:
            print(row(framework, Path(folder)), flush=True)


if __name__ == "__main__":
    with sentences():
        main()
