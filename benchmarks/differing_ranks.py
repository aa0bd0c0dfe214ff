"""Benchmark of capturing R ranks: Llama-8B under FSDP2 on 128 GPUs, with R captured and simulated ranks.

    python benchmarks/differing_ranks.py

Whole commands, from start to report. CPU time is that of all processes. Ranks share the cores, so on an idle machine
wall time is CPU time divided by the number of cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from ran import Ran, presim

from presim.cli.script import sentences

EXAMPLE = Path(__file__).parent.parent / "examples" / "llama_fsdp2.py"
COUNTS = (1, 2, 4, 8)


def measure(ranks: int, report: Path) -> Ran:
    """Run the example. The result must have this number of ranks and a step time."""
    chosen = ",".join(str(8 * number) for number in range(ranks))
    cluster = ("--gpu", "h100-sxm", "--nodes", "16", "--gpus-per-node", "8")
    ran = presim("run", *cluster, "--ranks", chosen, "--quiet", "--json", report, EXAMPLE)
    result = json.loads(report.read_text())
    assert len(result["ranks"]) == ranks
    assert result["step_time_s"] > 0
    return ran


def main() -> None:
    """Prints a table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| ranks | wall, s | CPU, s | CPU, s, of each after the first | times one |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "result.json"
        measure(1, report)  # warms the caches
        one = 0.0
        for ranks in COUNTS:
            ran = measure(ranks, report)
            one = one or ran.cpu_s
            more = f"{(ran.cpu_s - one) / (ranks - 1):.2f}" if ranks > 1 else ""
            print(f"| {ranks} | {ran.wall_s:.1f} | {ran.cpu_s:.1f} | {more} | {ran.cpu_s / one:.1f} |", flush=True)


if __name__ == "__main__":
    with sentences():
        main()
