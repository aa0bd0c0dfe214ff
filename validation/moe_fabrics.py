"""What a fabric costs a mixture of experts: oversubscribed 4:1 and 1:1, with and without rails.

    python validation/moe_fabrics.py [--model MODEL] [--nodes N] [--out validation/results/moe-fabrics.md]

Each row is a job that `presim compose` predicts on a cluster file. Switches have 8 ports downwards in every fabric: a
leaf joins the ports of one node, or one port of each of 8 nodes with rails.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from presim.cli import main as presim
from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import check_writable, decode_foreign_json, read_bytes, write_file

_LEAF_PORTS, _GPUS = 8, 8  # of switches scaled down, as the cluster is
FABRICS: Mapping[str, str] = {
    "fat tree 1:1": f'fabric = "fat-tree"\nleaf_nodes = {_LEAF_PORTS // _GPUS}\noversubscription = 1.0',
    "fat tree 4:1": f'fabric = "fat-tree"\nleaf_nodes = {_LEAF_PORTS // _GPUS}\noversubscription = 4.0',
    "rails 1:1": f'fabric = "rail"\nleaf_nodes = {_LEAF_PORTS}\noversubscription = 1.0',
    "rails 4:1": f'fabric = "rail"\nleaf_nodes = {_LEAF_PORTS}\noversubscription = 4.0',
}
PLANS: Mapping[str, str] = {
    "EP 8, all-to-all": "--ep 8 --expert-exchange all-to-all",
    "EP 32, all-to-all": "--ep 32 --expert-exchange all-to-all",
    "EP 32, DeepEP": "--ep 32 --expert-exchange deepep",
}
_HEAD = """# A mixture of experts on four fabrics

`validation/moe_fabrics.py --out validation/results/moe-fabrics.md` wrote this page: {model} on {gpus} H100 with a
400 Gb/s port each, sequences of 4,096 tokens, one a micro-batch, composed. A leaf switch has 8 ports downwards: those
of one node in a fat tree, one of each of 8 nodes with rails. "Waits" is communication that compute does not hide. The
last column is the step over that of the fat tree 1:1. These are predictions; no cluster was measured.

With rails, the experts' exchange stays below the leaves of eight nodes, so 4:1 costs at most 1 %: only reductions of
gradients cross the leaves. In the fat tree it doubles the step. A reduction that waits for a crowded link keeps its
claim on the ports that it shares with the exchange, so a scarcer link makes no step shorter.

| plan | fabric | step | waits | over 1:1 |
|---|---|---:|---:|---:|
"""


def step(model: str, nodes: int, network: str, plan: str) -> tuple[float, float]:
    """Step time and exposed communication of a plan on a network, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        cluster, result = Path(folder) / "cluster.toml", Path(folder) / "result.json"
        write_file(cluster, f'gpu = "h100-sxm"\nnodes = {nodes}\n[network]\n{network}\n'.encode())
        words = ["compose", model, "--cluster", str(cluster), "--seq", "4096", "--mbs", "1", *plan.split()]
        with contextlib.redirect_stdout(io.StringIO()):
            code = presim.run([*words, "--json", str(result), "-q"])
        if not result.is_file():
            raise InputError(f"`presim {' '.join(words)}` ended with exit code {code} and left no result")
        answer: Any = decode_foreign_json(read_bytes(result, "run it again"))
    return answer["step_time_s"], answer["time"]["exposed_communication_s"]


def lines(model: str, nodes: int) -> Iterator[str]:
    """The rows of the table."""
    for plan_name, plan in PLANS.items():
        reference_s = 0.0
        for fabric, network in FABRICS.items():
            step_s, exposed_s = step(model, nodes, network, plan)
            reference_s = reference_s or step_s
            ratio = f"{step_s / reference_s:.2f}"
            yield f"| {plan_name} | {fabric} | {step_s * 1e3:,.0f} ms | {exposed_s * 1e3:,.0f} ms | {ratio} |"


def main() -> None:
    """Compose, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3-30b-a3b", metavar="MODEL")
    parser.add_argument("--nodes", type=int, default=16, metavar="N")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.nodes < 4 or options.nodes % 4:
        raise InputError(f"--nodes {options.nodes}: 32 experts' ranks are on four nodes; give a multiple of 4")
    if options.out:
        check_writable(options.out)
    rows = []
    for row in lines(options.model, options.nodes):
        rows.append(row)
        print(row, flush=True)
    if options.out:
        head = _HEAD.format(model=options.model, gpus=options.nodes * _GPUS)
        write_file(options.out, (head + "\n".join(rows) + "\n").encode())


if __name__ == "__main__":
    with sentences():
        main()
