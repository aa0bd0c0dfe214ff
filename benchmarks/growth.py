"""Benchmark of growth: CPU time and memory of verbs on 128 to 100,352 GPUs.

    python benchmarks/growth.py [--worlds 128,1024] [--verbs run,search] [--limit SECONDS]

``run`` captures a script of four layers under HSDP that prints its loss on rank 0, so three ranks are captured or
compared. ``compose`` and ``search`` have Llama 3 8B with HSDP within a node and one sample for each GPU; ``search``
varies tensor parallelism, micro-batches and recomputation. ``serve`` has one engine of Llama 3 8B and two requests for
each GPU; ``deploy`` looks for the best use of all of them. ``network explain`` names NCCL's choices for an all-reduce
over all GPUs. The exponent is that of CPU time between the smallest and the largest number of GPUs: 0 where GPUs cost
nothing, 1 where twice as many take twice as long.

Where a command took more CPU time than the limit, the verb is not run for more GPUs: "-" in the table.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from pathlib import Path

from ran import Ran, at_least_one, presim

from presim.cli.script import sentences

WORLDS = (128, 1_024, 16_384, 100_352)
SCRIPT = """
import os, torch
from torch import nn
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
world = int(os.environ["WORLD_SIZE"])
mesh = init_device_mesh("cuda", (world // 8, 8), mesh_dim_names=("replicas", "shards"))
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).cuda()
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    loss = model(torch.ones(8, 1024, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(step, loss.item())
"""
VERBS = ("run", "compose", "search", "serve", "deploy", "network explain")
HSDP = ["--dp-style", "hsdp", "--shard", "8"]


def commands(world: int, folder: Path) -> dict[str, list[str | Path]]:
    """The commands for so many GPUs, by verb."""
    cluster = ["--gpu", "h100-sxm", "--nodes", str(world // 8)]
    model = ["llama3-8b", *cluster, "--seq", "4096", "--global-batch", str(world), *HSDP]
    result: list[str | Path] = ["--quiet", "--json", folder / "result.json"]
    knobs = ["--tp", "1,2,4", "--mbs", "1,2", "--pp", "1", "--vpp", "1", "--cp", "1", "--reshard", "true"]
    load = ["--requests", str(2 * world), "--rate", str(world), "--input", "512", "--output", "64"]
    return {
        "run": ["run", *cluster, *result, folder / "train.py"],
        "compose": ["compose", *model, "--recompute", "full", *result],
        "search": ["search", *model, *knobs, "--jobs", "1", *result],
        "serve": ["serve", "llama3-8b", "--gpu", "h100-sxm", "--replicas", str(world), *load, *result],
        "deploy": ["deploy", "llama3-8b", "--gpu", "h100-sxm", "--total-gpus", str(world), "--slo", "tpot:50", *result],
        "network explain": ["network", "explain", *cluster, "--collective", "all_reduce"],
    }


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=worlds, default=WORLDS, help="numbers of GPUs, ascending multiples of 8")
    parser.add_argument("--verbs", type=verbs, default=VERBS, help="which verbs")
    parser.add_argument("--limit", type=at_least_one("seconds"), default=120, help="CPU seconds of a command")
    return parser.parse_args()


def worlds(text: str) -> tuple[int, ...]:
    """Type of ``--worlds``."""
    numbers = tuple(int(part) if part.isdecimal() else 0 for part in text.split(","))
    if any(world < 16 or world % 8 for world in numbers) or list(numbers) != sorted(set(numbers)):
        raise argparse.ArgumentTypeError(f"{text} are no ascending multiples of 8 GPUs from 16 on")
    return numbers


def verbs(text: str) -> tuple[str, ...]:
    """Type of ``--verbs``."""
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in VERBS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(VERBS)}")
    return names


def main() -> None:
    """Prints a table."""
    args = options()
    os.environ["PRESIM_CACHE_MB"] = "0"  # figures of earlier searches are not used
    header = " | ".join(f"{world:,} GPUs" for world in args.worlds)
    print(f"| verb | {header} | exponent |\n|---|{'---|' * len(args.worlds)}---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        for verb in args.verbs:
            print(row(verb, args.worlds, args.limit, folder), flush=True)


def row(verb: str, worlds: tuple[int, ...], limit_s: int, folder: Path) -> str:
    """A verb's row of the table."""
    finished: dict[int, Ran] = {}
    for world in worlds:
        if any(command.cpu_s > limit_s for command in finished.values()):
            break
        finished[world] = presim(*commands(world, folder)[verb])
        if verb in ("run", "compose"):
            assert json.loads((folder / "result.json").read_text())["step_time_s"] > 0
    cells = [f"{command.cpu_s:.1f} s, {command.peak_bytes / 1e6:.0f} MB" for command in finished.values()]
    cells += ["-"] * (len(worlds) - len(cells))
    return f"| {verb} | {' | '.join(cells)} | {exponent(finished)} |"


def exponent(finished: dict[int, Ran]) -> str:
    """By which power of the number of GPUs CPU time grows between the first and the last command."""
    first, last = min(finished), max(finished)
    return (
        f"{math.log(finished[last].cpu_s / finished[first].cpu_s) / math.log(last / first):.2f}"
        if last > first
        else "-"
    )


if __name__ == "__main__":
    with sentences():
        main()
