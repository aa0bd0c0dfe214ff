"""What a larger world costs: the same small model on 1,024 to 100,000 GPUs, one rank captured.

    python benchmarks/world_size.py

FSDP2 inside a node and replicas between nodes, as jobs of that size have it: shards over more than 65,535 GPUs fail in
PyTorch, here as on a cluster (docs/guide/troubleshooting.md). Every run has to end with a step time before it counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from ran import presim

from presim.cli.script import sentences

WORLDS = (1_024, 16_384, 100_000)
SCRIPT = """
import os, torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
nodes = int(os.environ["WORLD_SIZE"]) // 8
mesh = init_device_mesh("cuda", (nodes, 8), mesh_dim_names=("replicas", "shards"))
layers = [nn.Linear(1024, 1024) for _ in range(4)]
model = nn.Sequential(*layers).cuda()
for layer in layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.ones(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def measure(world: int, folder: Path) -> str:
    """A row of the table."""
    script, report, saved = folder / "train.py", folder / "result.json", folder / f"saved-{world}"
    script.write_text(SCRIPT)
    options = ["--gpu", "h100-sxm", "--nodes", str(world // 8), "--gpus-per-node", "8", "--ranks", "0", "--quiet"]
    ran = presim("run", *options, "--save", saved, "--json", report, script)
    assert json.loads(report.read_text())["step_time_s"] > 0
    size = sum(path.stat().st_size for path in saved.iterdir())
    return f"| {world:,} | {ran.wall_s:.1f} | {ran.cpu_s:.1f} | {size / 1e3:.0f} | {report.stat().st_size / 1e3:.0f} |"


def main() -> None:
    """Prints a table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| GPUs | wall, s | CPU, s | trace, kB | result, kB |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for world in WORLDS:
            print(measure(world, Path(folder)), flush=True)


if __name__ == "__main__":
    with sentences():
        main()
