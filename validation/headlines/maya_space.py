"""Searches the whole space of Maya's table of knobs, 1,920 points, and counts what became of each.

    python validation/headlines/maya_space.py [--nodes 8] [--out validation/results/maya-space.md]

Knobs and values are those of the paper's table: tensor and pipeline degree 1, 2, 4, 8; multiplier of micro-batches 1,
2, 4, 6, 8; virtual stages 1, 2, 4; recomputation, sequence parallelism and distributed optimizer on and off. Model and
batch are its GPT-3 18.4B with 512 samples. Knobs that presim has beyond these are pinned. A multiplier m means m
micro-batches for each pipeline stage, so that the micro-batch is 512 x TP / (GPUs x m) samples: where that is no
whole number there is no plan. Nothing that an earlier search computed is used, so that the time is that of the whole.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from presim.cli import main as presim
from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import check_writable, decode_foreign_json, read_bytes, write_file
from presim.units import GIB

TENSOR, PIPELINE, MULTIPLIERS, VIRTUAL = (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 6, 8), (1, 2, 4)
SWITCHES = 2 * 2 * 2  # recomputation, sequence parallelism, distributed optimizer
BATCH, GPUS_PER_NODE = 512, 8
# 40 layers of width 6,144 and 48 heads have 18.4 billion parameters (Megatron-LM, arXiv 2104.04473, table 1)
GPT = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 6144, "n_layer": 40, "n_head": 48,
    "n_positions": 2048, "n_ctx": 2048, "vocab_size": 51200, "use_cache": False,
}  # fmt: skip


def micro_batches(tensor: int, world_size: int) -> list[int]:
    """Samples of a micro-batch for each multiplier that gives a whole number."""
    return [BATCH * tensor // (world_size * m) for m in MULTIPLIERS if BATCH * tensor % (world_size * m) == 0]


def words(model: Path, tensor: int, nodes: int) -> list[str]:
    """The command that searches the part of the space with this tensor-parallel degree."""
    sizes = ",".join(map(str, micro_batches(tensor, nodes * GPUS_PER_NODE)))
    return [
        *("search", str(model), "--gpu", "h100-sxm", "--nodes", str(nodes), "--seq", "2048"),
        *("--global-batch", str(BATCH), "--tp", str(tensor), "--pp", "1,2,4,8", "--vpp", "1,2,4", "--mbs", sizes),
        *("--recompute", "none,full", "--sp", "true,false", "--dp-style", "ddp,zero1"),
        *("--cp", "1", "--reshard", "true", "--shard", "0"),
    ]


def searched(command: list[str]) -> dict[str, Any]:
    """The result of a search."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        with contextlib.redirect_stdout(io.StringIO()):
            code = presim.run([*command, "--json", str(path), "-q"])
        if not path.is_file():
            raise InputError(f"`presim {' '.join(command)}` ended with exit code {code} and left no result")
        document: dict[str, Any] = decode_foreign_json(read_bytes(path, "run it again"))
    return document


def cpu_s() -> float:
    """CPU seconds of this process and of its workers that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def row(tensor: int, document: dict[str, Any], missing: int, spent_s: float) -> str:
    """A tensor-parallel degree as a row of the page."""
    fates = collections.Counter(trial["fate"] for trial in document["trials"])
    points, plans = document["points"], len(document["trials"])
    best = best_of(document)
    shown = f"{best['figures']['step_time_s']:.2f} s" if best else "none fits"
    return (
        f"| {tensor} | {points + missing} | {missing} | {points - plans} | {fates['illegal']} | {fates['pruned']} | "
        f"{fates['priced']} | {shown} | {spent_s:.0f} |"
    )


def best_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The best trial of a search."""
    numbers = document["best"]
    return next((trial for trial in document["trials"] if numbers and trial["number"] == numbers[0]), None)


def page(rows: list[str], best: dict[str, Any] | None, nodes: int, wall_s: float, spent_s: float) -> str:
    """The page of the result."""
    total = len(TENSOR) * len(PIPELINE) * len(MULTIPLIERS) * len(VIRTUAL) * SWITCHES
    shown = "No plan fits."
    if best:
        figures, point = best["figures"], best["point"]
        knobs = ("tensor", "pipeline", "virtual", "micro_batch", "recompute", "sequence_parallel", "data_style")
        plan = ", ".join(f"{name} {point[name]}" for name in knobs)
        memory_GiB = figures["memory_bytes"] / GIB
        shown = f"Best: {figures['step_time_s']:.3f} s a step and {memory_GiB:.1f} GiB: {plan}."
    cluster = f"{nodes * GPUS_PER_NODE} H100"
    return f"""# Maya's search space: {total:,} points

`python validation/headlines/maya_space.py --nodes {nodes}` wrote this page: GPT-3 18.4B, {BATCH} samples of 2,048
tokens, {cluster}. Each point of the table is counted once.

- It has no whole micro-batch,
- or it is the same plan as another point, because a knob has no effect,
- or it is illegal,
- or it is pruned: it does not fit, or a bound shows that it is at most 1 % faster than the best,
- or it is simulated.

{shown}

The search took {wall_s:.0f} s on a machine with {os.cpu_count()} cores, {spent_s:.0f} s of CPU time, with an empty
cache and the tracing of the model. The paper gives neither the time nor the best plan of this space in numbers.

| TP | points | no whole micro-batch | same plan | illegal | pruned | simulated | best | CPU s |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|
""" + "\n".join((*rows, ""))


def main() -> None:
    """Search, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.nodes < 1 or BATCH % (options.nodes * GPUS_PER_NODE):
        raise InputError(f"--nodes {options.nodes}: {BATCH} samples must divide among {GPUS_PER_NODE} GPUs a node")
    if options.out:
        check_writable(options.out)
    rows, best, start, first_s = [], None, time.monotonic(), cpu_s()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        (Path(folder) / "config.json").write_text(json.dumps(GPT))
        for tensor in TENSOR:
            before_s = cpu_s()
            document = searched(words(Path(folder), tensor, options.nodes))
            lost = len(MULTIPLIERS) - len(micro_batches(tensor, options.nodes * GPUS_PER_NODE))
            rows.append(row(tensor, document, lost * len(PIPELINE) * len(VIRTUAL) * SWITCHES, cpu_s() - before_s))
            print(rows[-1], flush=True)
            trial = best_of(document)
            if trial and (best is None or trial["figures"]["step_time_s"] < best["figures"]["step_time_s"]):
                best = trial
    text = page(rows, best, options.nodes, time.monotonic() - start, cpu_s() - first_s)
    print(text)
    if options.out:
        write_file(options.out, text.encode())


if __name__ == "__main__":
    with sentences():
        main()
