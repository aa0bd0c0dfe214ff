"""Benchmark of `presim.evaluate` with prepared traces and priced signatures: CPU time per call.

    python benchmarks/evaluate.py >benchmarks/results/evaluate.md

The trace is a generated step of Llama 3 8B on 128 H100 with about 10,000 entries. Each result is compared with the
pipeline's before it is timed. Times are medians of CPU time, which depends little on other processes.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
os.environ["PRESIM_ENGINE"] = "compiled"

from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import evaluate
from presim.evaluation.evaluator import Evaluator
from presim.hardware import choose_cluster
from presim.trace.job import Job
from support import workloads

CALLS = 30


def main() -> None:
    """Print the table."""
    trace = workloads.llama_8b(steps=6, layers=32)
    job, evaluator = Job((trace,)), Evaluator()
    clusters = [choose_cluster(gpu=gpu, nodes=16, gpus_per_node=8) for gpu in ("h100-sxm", "h200")]
    print(f"{len(trace)} entries, {len(trace.signatures)} signatures, {CALLS} calls\n")
    print("| call | CPU time, ms |")
    print("|---|---|")
    begun = time.process_time()
    evaluator.evaluate(job, clusters[0])
    print(f"| first, with the compiled loop loaded | {(time.process_time() - begun) * 1e3:.0f} |")
    for name, cluster, options in (
        ("same cluster", clusters[0], None),
        ("same cluster, hosts 1.2 times as slow", clusters[0], Options(host_factor=1.2)),
        ("another cluster, priced before", clusters[1], None),
    ):
        found = evaluator.evaluate(job, cluster, options)
        assert found == evaluate(Job.of(trace), cluster, options).result
        times = []
        for _ in range(CALLS):
            begun = time.process_time()
            evaluator.evaluate(job, cluster, options)
            times.append(time.process_time() - begun)
        print(f"| {name} | {statistics.median(times) * 1e3:.1f} |")


if __name__ == "__main__":
    main()
