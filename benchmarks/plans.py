"""Benchmark of composed plans after the first one in a process: compose, price and simulate, CPU time and memory.

    python benchmarks/plans.py

Each plan is evaluated twice: by simulating all of its micro-batches, and with repeated micro-batches skipped. Both step
times must be equal. Plans of one model run in a process of their own, after a plan that is not counted.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

from presim.cli.script import sentences
from presim.composition.graph.take import open_graph
from presim.composition.plan import Plan
from presim.evaluation.evaluate_traces import pricer_of
from presim.evaluation.plan_evaluation import evaluate_plan
from presim.hardware.cluster_choice import choose_cluster
from presim.planner.trials.point_evaluator import PlanEvaluator
from presim.planner.trials.trial_messages import Subject

RESULT = Path(__file__).parent / "results" / "plans.md"
MEGATRON = {"sequence": 4096, "tensor": 8, "sequence_parallel": True, "data_style": "zero1"}
PLANS = {
    "llama3-70b": [
        ("128 GPUs, FSDP2, recomputation", 128, Plan(sequence=8192, recompute="full")),
        ("1,024 GPUs, FSDP2, recomputation", 1024, Plan(sequence=8192, recompute="full")),
        ("1,024 GPUs, TP 8, PP 4, 16 micro-batches", 1024, Plan(pipeline=4, global_batch=512, **MEGATRON)),
        ("1,024 GPUs, TP 8, PP 4, 64 micro-batches", 1024, Plan(pipeline=4, global_batch=2048, **MEGATRON)),
        ("16,384 GPUs, TP 8, PP 4, 16 micro-batches", 16384, Plan(pipeline=4, global_batch=8192, **MEGATRON)),
    ],
    "llama3-405b": [
        ("16,384 GPUs, TP 8, PP 16, 32 micro-batches", 16384, Plan(pipeline=16, global_batch=4096, **MEGATRON)),
    ],
}
HEAD = """# Composed plans

Written by `benchmarks/plans.py` on {date}: {machine}, a shared machine, so CPU time; the smallest of {repeats} runs.
"All": all micro-batches are simulated. "Repeated": those that provably repeat are simulated once; step times are equal.

| plan | all | repeated | step time |
|---|---|---|---|
"""
REPEATS = 5


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", choices=list(PLANS), help="print the rows of this model, in this process")
    given = parser.parse_args()
    if given.rows:
        print("\n".join(rows(given.rows)))
        return
    date = datetime.datetime.now(tz=datetime.UTC).date()
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    page = HEAD.format(date=date, machine=machine, repeats=REPEATS)
    for model in PLANS:
        command = [sys.executable, __file__, "--rows", model]
        page += subprocess.run(command, check=True, capture_output=True, text=True).stdout
    RESULT.write_text(page)
    print(page)


def rows(model: str) -> list[str]:
    """The rows of one model, and the memory of the process."""
    graph, found = open_graph(model), []
    for repeat in (True, False):
        before = []
        for name, gpus, plan in PLANS[model]:
            cluster = choose_cluster(gpu="h100-sxm", world_size=gpus)
            chain = PlanEvaluator(Subject()).chain(cluster)
            took, step_s = [], 0.0
            for _ in range(1 + REPEATS):
                start = time.process_time()
                evaluation = evaluate_plan(graph, plan, cluster, repeat=repeat, pricer=pricer_of((), chain), brief=True)
                took.append(time.process_time() - start)
                step_s = evaluation.result.step_time_s or 0.0
            before.append((f"{model}, {name}", min(took[1:]), step_s))
        found.append(before)
        if repeat:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    for few, every in zip(*found):
        assert few[2] == every[2], f"{few[0]}: {few[2]} s is not {every[2]} s"
    table = [f"| {few[0]} | {every[1]:.2f} s | {few[1]:.2f} s | {few[2]:.3f} s |" for few, every in zip(*found)]
    return [*table, f"| {model}, largest memory of the process (repeated) | | {peak} MiB | |"]


if __name__ == "__main__":
    with sentences():
        main()
