"""What capturing R ranks costs beside one: Llama-8B under FSDP2 on 128 GPUs, R of its ranks captured and simulated.

    python benchmarks/differing_ranks.py

Whole commands, from start to report. CPU time is of all processes together; a job's ranks share the cores, so wall time
is CPU time over cores where nothing else runs.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "llama_fsdp2.py"
COUNTS = (1, 2, 4, 8)


def measure(ranks: int, report: Path) -> tuple[float, float]:
    """Wall and CPU seconds; the result has to hold as many ranks and a step time."""
    chosen = ",".join(str(8 * number) for number in range(ranks))
    command = [sys.executable, "-m", "presim", "run", "--gpu", "h100-sxm", "--nodes", "16", "--gpus-per-node", "8"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [*command, "--ranks", chosen, "--quiet", "--json", report, EXAMPLE],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(report.read_text())
    assert len(result["ranks"]) == ranks
    assert result["step_time_s"] > 0
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints a table."""
    print("| ranks | wall, s | CPU, s | CPU, s, of each after the first | times one |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "result.json"
        measure(1, report)  # warms the caches
        one = 0.0
        for ranks in COUNTS:
            wall, cpu = measure(ranks, report)
            one = one or cpu
            more = f"{(cpu - one) / (ranks - 1):.2f}" if ranks > 1 else ""
            print(f"| {ranks} | {wall:.1f} | {cpu:.1f} | {more} | {cpu / one:.1f} |", flush=True)


if __name__ == "__main__":
    main()
