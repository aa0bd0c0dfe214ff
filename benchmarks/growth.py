"""Benchmark of growth: CPU time and memory of verbs on 128 to 100,352 GPUs.

    python benchmarks/growth.py

``run`` captures a script of four layers under HSDP that prints its loss on rank 0, so three ranks are captured or
compared. ``compose`` and ``search`` have Llama 3 8B with HSDP within a node and one sample for each GPU; ``search``
varies tensor parallelism, micro-batches and recomputation. ``network explain`` names NCCL's choices for an all-reduce
over all GPUs. The exponent is that of CPU time between the smallest and the largest number of GPUs: 0 where GPUs cost
nothing, 1 where twice as many take twice as long.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from pathlib import Path

from ran import Ran, presim

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
HSDP = ["--dp-style", "hsdp", "--shard", "8"]


def commands(world: int, folder: Path) -> dict[str, list[str | Path]]:
    """The commands for so many GPUs, by verb."""
    cluster = ["--gpu", "h100-sxm", "--nodes", str(world // 8)]
    model = ["llama3-8b", *cluster, "--seq", "4096", "--global-batch", str(world), *HSDP]
    result = ["--quiet", "--json", folder / "result.json"]
    knobs = ["--tp", "1,2,4", "--mbs", "1,2", "--pp", "1", "--vpp", "1", "--cp", "1", "--reshard", "true"]
    return {
        "run": ["run", *cluster, *result, folder / "train.py"],
        "compose": ["compose", *model, "--recompute", "full", *result],
        "search": ["search", *model, *knobs, "--jobs", "1", *result],
        "network explain": ["network", "explain", *cluster, "--collective", "all_reduce"],
    }


def exponent(first: Ran, last: Ran) -> float:
    """By which power of the number of GPUs CPU time grows between the first and the last command."""
    return math.log(last.cpu_s / first.cpu_s) / math.log(WORLDS[-1] / WORLDS[0])


def main() -> None:
    """Prints a table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    os.environ["PRESIM_CACHE_MB"] = "0"  # figures of earlier searches are not used
    header = " | ".join(f"{world:,} GPUs" for world in WORLDS)
    print(f"| verb | {header} | exponent |\n|---|{'---|' * len(WORLDS)}---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        for verb in commands(WORLDS[0], folder):
            print(row(verb, folder), flush=True)


def row(verb: str, folder: Path) -> str:
    """A verb's row of the table."""
    finished = []
    for world in WORLDS:
        finished.append(presim(*commands(world, folder)[verb]))
        if verb in ("run", "compose"):
            assert json.loads((folder / "result.json").read_text())["step_time_s"] > 0
    cells = " | ".join(f"{command.cpu_s:.1f} s, {command.peak_bytes / 1e6:.0f} MB" for command in finished)
    return f"| {verb} | {cells} | {exponent(finished[0], finished[-1]):.2f} |"


if __name__ == "__main__":
    with sentences():
        main()
