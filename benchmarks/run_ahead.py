"""Peak reserved memory with and without `--live`, and what `--live` costs, for examples and programs that query events.

    python benchmarks/run_ahead.py [NAME...]      (a part of the name of a row)

Both should see the same, what a host that runs ahead of its device sees. Rows are the examples on one or two GPUs and
the programs of tests/integration/test_run_ahead.py, here with host time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import textwrap
from pathlib import Path

from ran import presim

from presim.cli.script import sentences
from presim.errors import InputError

ROOT = Path(__file__).parent.parent
ONE, TWO = ("--gpu", "h100-sxm"), ("--gpu", "h100-sxm", "--gpus-per-node", "2")
EXAMPLES: dict[str, tuple[str, ...]] = {
    "gpt2_ddp.py": TWO,
    "llama_fsdp2.py": (*ONE, "--nodes", "1", "--ranks", "0"),
    "hf_trainer.py --backend ddp": TWO,
    "hf_trainer.py --backend fsdp": TWO,
    "hf_trainer.py --backend deepspeed": TWO,
    "deepspeed_zero.py --stage 2": TWO,
    "deepspeed_zero.py --stage 3": TWO,
    "deepspeed_zero.py --stage 2 --offload optimizer": TWO,
    "lightning_gpt.py --strategy fsdp": TWO,
    "megatron_gpt.py --distributed-optimizer": TWO,
    "megatron_gpt.py --pipeline-parallel 2 --micro-batches 8": TWO,
    "recommender.py": TWO,
    "lora.py": ONE,
    "model_zoo.py resnet50 --batch 256": ONE,
    "graph_attention.py": ONE,
    "vit_huge.py": ONE,
    "out_of_memory.py": ONE,
    "vllm_offline.py --eager": (*ONE, "--steps", "0"),
}


def programs(folder: Path) -> dict[str, tuple[str, ...]]:
    """The programs that query events, by the path of a script."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "integration")]
    import test_run_ahead as cases

    found: dict[str, tuple[str, ...]] = {}
    for name, body in cases.PROGRAMS.items():
        script = folder / f"{name.replace(' ', '_')}.py"
        script.write_text(cases.PRELUDE.replace("{body}", textwrap.indent(textwrap.dedent(body), "    ")))
        found[str(script)] = ONE
    return found


def measure(script: str, options: tuple[str, ...], out: Path) -> tuple[int, float]:
    """Peak reserved bytes, and CPU seconds of all processes."""
    ran = presim("run", "--quiet", "--json", out, *options, *script.split(), cwd=ROOT / "examples")
    return int(json.loads(out.read_text())["memory"]["peak_reserved_bytes"]), ran.cpu_s


def row(name: str, script: str, options: tuple[str, ...], out: Path) -> str:
    """A line of the table."""
    try:
        reserved, cpu_s = measure(script, options, out)
        live_reserved, live_s = measure(script, ("--live", *options), out)
    except InputError as error:
        return f"| {name} | {error} | | | | |"
    off = live_reserved / reserved - 1 if reserved else 0.0
    sizes = f"{reserved / 2**20:,.0f} | {live_reserved / 2**20:,.0f} | {off:+.1%}"
    return f"| {name} | {sizes} | {cpu_s:.1f} | {live_s:.1f} |"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    with tempfile.TemporaryDirectory() as folder:
        rows = {script.removeprefix(f"{folder}/"): script for script in {**EXAMPLES, **programs(Path(folder))}}
    if unknown := [part for part in names if not any(part in name for name in rows)]:
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(rows)}")
    print("| program | reserved, MiB | with `--live` | | CPU, s | with `--live` |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for script, options in {**EXAMPLES, **programs(Path(folder))}.items():
            name = script.removeprefix(f"{folder}/")
            if not names or any(part in name for part in names):
                print(row(name, script, options, Path(folder) / "result.json"), flush=True)


if __name__ == "__main__":
    with sentences():
        main()
