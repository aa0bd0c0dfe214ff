"""Benchmark of operator graphs: exporting and reading one, and composing, pricing and simulating a plan.

    python benchmarks/graphs.py

Llama 3.1 405B is exported, saved and read. Plans of Llama 3.1 70B on 1,024 GPUs are composed twice, the second time
with everything imported and compiled. Times are CPU time. A graph must have the model's number of parameters.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from presim.cli.script import cpu_s, sentences
from presim.composition.compose import compose
from presim.composition.graph import graph_files
from presim.composition.graph.take import take
from presim.composition.plan import Plan
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster

PARAMETERS = 405_853_388_800
RESULT = Path(__file__).parent / "results" / "graphs.md"
_READING = (
    "import sys; from presim.composition.graph import graph_files; graph_files.load(sys.argv[1]); "
    "assert 'torch' not in sys.modules"
)


def seconds(action: Callable[[], object]) -> float:
    """CPU time of an action, including processes that it waits for."""
    before = cpu_s()
    action()
    return cpu_s() - before


def main() -> None:
    """Write the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph")
        graphs = []
        rows.append(("Take Llama 3.1 405B, CPU time", f"{seconds(lambda: graphs.append(take('llama3-405b'))):.1f} s"))
        assert graphs[0].parameter_count() == PARAMETERS
        graph_files.save(graphs[0], path)
        rows.append(("Its file", f"{path.stat().st_size / 1e3:.0f} kB"))
        best = min(_cpu(lambda: graph_files.load(path)) for _ in range(20))
        rows.append(("Read it, best of 20", f"{best * 1e3:.2f} ms"))
        process = seconds(lambda: subprocess.run([sys.executable, "-c", _READING, str(path)], check=True))
        rows.append(("Read it in a fresh process, which never imports torch", f"{process:.2f} s"))
    graph = take("llama3-70b")
    cluster = choose_cluster(gpu="h100-sxm", world_size=1024)
    for attempt in ("first", "second"):
        sequence = {"first": 8192, "second": 4096}[attempt]
        spent = _cpu(lambda sequence=sequence: _predict(graph, sequence, cluster))  # type: ignore[misc]
        rows.append((f"Compose, price and simulate Llama 3.1 70B on 1,024 H100, {attempt} plan", f"{spent:.2f} s"))
    table = "\n".join(f"| {what} | {value} |" for what, value in rows)
    page = f"# Operator graphs\n\nWritten by `benchmarks/graphs.py`.\n\n| | |\n|---|---|\n{table}\n"
    RESULT.write_text(page)
    print(page)


def _predict(graph, sequence, cluster) -> None:  # type: ignore[no-untyped-def]
    job = compose(graph, Plan(sequence=sequence, recompute="full"), cluster)
    result = evaluate(job, cluster).result
    assert result.step_time_s


def _cpu(action: Callable[[], object]) -> float:
    before = time.process_time()
    action()
    return time.process_time() - before


if __name__ == "__main__":
    with sentences():
        main()
