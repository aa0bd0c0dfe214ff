"""Benchmark of memory with many concurrent ranks, each with a model that is initialised on the CPU.

    python benchmarks/many_ranks.py [--ranks 64] [--import MODULE]

Runs a transformer of 6.7B parameters in float32, sharded by FSDP2 over H100s, with ``--ranks all``: one step of all
ranks at the same time. Imports are most of a rank's memory; ``--import transformers`` adds some. Every few seconds it
reads the kernel's commitments (Committed_AS), the memory of the processes (Pss, with shared pages divided) and their
largest mappings (VmPeak). The run stops when less than 2 GiB of the machine's memory are left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from ran import PRESIM, at_least_one, failure

from presim.cli.script import sentences
from presim.errors import InputError

LEFT = 2 << 30  # bytes of the machine's memory
PAUSE = 8.0  # seconds
MEASURES = ("committed", "resident", "largest", "mapped", "one_mapped")

SCRIPT = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
layers = [nn.TransformerEncoderLayer(4096, 32, 16384, 0.0, norm_first=True, batch_first=True) for _ in range(32)]
model = nn.Sequential(nn.Embedding(32000, 4096), *layers, nn.Linear(4096, 32000, bias=False))
assert sum(one.numel() for one in model.parameters()) > 6.7e9
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
tokens = torch.randint(32000, (1, 2048), device="cuda")
nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
optimizer.step()
"""


def number(text: str, key: str) -> int:
    """Bytes of a key in a file of /proc; 0 if the key is missing."""
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(key + ":")), 0)


def below(root: int) -> list[Path]:
    """The process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(entry.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(entry.parent.name))
        except OSError:
            continue
    found = [root]
    for process in found:
        found += parents.get(process, [])
    return [Path(f"/proc/{process}") for process in found]


def look(root: int) -> dict[str, int]:
    """Current memory of the processes, bytes."""
    now = dict.fromkeys(MEASURES, 0)
    for process in below(root):
        try:
            held = number((process / "smaps_rollup").read_text(), "Pss")
            mapped = number((process / "status").read_text(), "VmPeak")
        except OSError:
            continue
        now["resident"] += held
        now["largest"] = max(now["largest"], held)
        now["mapped"] += mapped
        now["one_mapped"] = max(now["one_mapped"], mapped)
    now["committed"] = number(Path("/proc/meminfo").read_text(), "Committed_AS")
    return now


def measure(ranks: int, imported: str, folder: Path) -> tuple[dict[str, int], float]:
    """Peaks during the command, and its duration in seconds."""
    script, report = folder / "train.py", folder / "result.json"
    script.write_text(f"import {imported}\n{SCRIPT}")
    options = ["--gpu", "h100-sxm", "--world-size", str(ranks), "--ranks", "all", "--steps", "1", "--quiet"]
    command = [*PRESIM, "run", *options, "--json", str(report), str(script)]
    before = number(Path("/proc/meminfo").read_text(), "Committed_AS")
    peaks = dict.fromkeys(MEASURES, 0)
    start = time.perf_counter()
    process = subprocess.Popen(command)
    while process.poll() is None:
        for key, value in look(process.pid).items():
            peaks[key] = max(peaks[key], value)
        if number(Path("/proc/meminfo").read_text(), "MemAvailable") < LEFT:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise InputError(
                f"stopped: less than {LEFT >> 30} GiB of memory were left; peaks so far {peaks}; give fewer --ranks"
            )
        time.sleep(PAUSE)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise failure(command, process.returncode)
    result = json.loads(report.read_text())
    assert len(result["ranks"]) == ranks, len(result["ranks"])
    peaks["committed"] -= before
    return peaks, seconds


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=at_least_one("ranks"), default=64, metavar="N")
    parser.add_argument("--import", dest="imported", default="torch", metavar="MODULE", help="what else it imports")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peaks, seconds = measure(options.ranks, options.imported, Path(folder))
    gib = {key: value / 2**30 for key, value in peaks.items()}
    print(f"{options.ranks} ranks, {seconds:.0f} s on {os.cpu_count()} cores. Peaks, GiB:\n")
    print("| resident | of one process | promised | mapped | by one process |\n|---|---|---|---|---|")
    columns = ("resident", "largest", "committed", "mapped", "one_mapped")
    print("| " + " | ".join(f"{gib[key]:.2f}" for key in columns) + " |")


if __name__ == "__main__":
    with sentences():
        main()
