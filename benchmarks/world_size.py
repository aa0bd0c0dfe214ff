"""Benchmark of world sizes: the same small model on 1,024 to 100,000 GPUs with one captured rank.

    python benchmarks/world_size.py

Layouts: FSDP2 over all GPUs (up to 65,535 shards, the limit of PyTorch: docs/guide/troubleshooting.md), FSDP2 within a
node with replicas between nodes (HSDP), DDP over all, and tensor, pipeline and data parallelism as process groups of a
mesh. Every run must have a step time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from ran import presim

from presim.cli.script import sentences

WORLDS = {
    "fsdp": (1_024, 16_384, 65_536 - 8),
    "hsdp": (1_024, 16_384, 100_000),
    "ddp": (1_024, 16_384, 100_000),
    "tp-pp-dp": (1_024, 16_384, 99_968),
}
SCRIPT = """
import os, sys, torch
from torch import nn
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
world, layout = int(os.environ["WORLD_SIZE"]), sys.argv[1]
layers = [nn.Linear(1024, 1024) for _ in range(4)]
model = nn.Sequential(*layers).cuda()
gradients = None
if layout == "ddp":
    dist.init_process_group("nccl")
    model = nn.parallel.DistributedDataParallel(model)
elif layout == "tp-pp-dp":
    mesh = init_device_mesh("cuda", (4, world // 32, 8), mesh_dim_names=("pp", "dp", "tp"))
    gradients = mesh["dp"].get_group()
    layers[0].register_forward_hook(lambda *args: dist.all_reduce(args[-1], group=mesh["tp"].get_group()))
else:
    shape, names = ((world // 8, 8), ("replicas", "shards")) if layout == "hsdp" else ((world,), ("shards",))
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=names)
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.ones(8, 1024, device="cuda")).sum().backward()
    for parameter in model.parameters() if gradients else ():
        dist.all_reduce(parameter.grad, group=gradients)
    optimizer.step()
    optimizer.zero_grad()
"""


def measure(layout: str, world: int, folder: Path) -> str:
    """A row of the table."""
    script, report, saved = folder / "train.py", folder / "result.json", folder / f"saved-{layout}-{world}"
    script.write_text(SCRIPT)
    options = ["--gpu", "h100-sxm", "--nodes", str(world // 8), "--gpus-per-node", "8", "--ranks", "0", "--quiet"]
    ran = presim("run", *options, "--save", saved, "--json", report, script, layout)
    assert json.loads(report.read_text())["step_time_s"] > 0
    size = sum(path.stat().st_size for path in saved.iterdir())
    taken = f"{ran.wall_s:.1f} | {ran.cpu_s:.1f}"
    return f"| {layout} | {world:,} | {taken} | {size / 1e3:.0f} | {report.stat().st_size / 1e3:.0f} |"


def main() -> None:
    """Prints a table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| layout | GPUs | wall, s | CPU, s | trace, kB | result, kB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for layout, worlds in WORLDS.items():
            for world in worlds:
                print(measure(layout, world, Path(folder)), flush=True)


if __name__ == "__main__":
    with sentences():
        main()
