"""Benchmark of capturing: a Llama-8B step with everything recorded, and the bare framework on the same fake libraries.

    python benchmarks/capture_step.py [--pairs N]

Both run in turn, each in its own process, and report the median wall time of their steady steps. Goal: a captured step
takes at most twice the time of a bare one, and less than 0.15 s on 2 cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ran import at_least_one, run

from presim.capture.capture_job import CaptureRequest, capture
from presim.capture.launchers.launch import Launch
from presim.capture.processes.variables import environment
from presim.capture.ranks.rank_selection import Selection
from presim.capture.setup.shim import require_shim
from presim.cli.script import sentences
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.hardware.device_config import device_config
from presim.trace.schema import Kind

SCRIPT = Path(__file__).parent / "llama_step.py"
CLUSTER = choose_cluster(gpu="h200")


def bare() -> float:
    """Seconds of a step on the fake libraries, without a log or hook."""
    with tempfile.TemporaryDirectory() as name:
        device, out = Path(name) / "device", Path(name) / "seconds"
        device.write_text(device_config(CLUSTER.gpu, 1))
        variables = environment(require_shim(), device, Path(name), {})
        del variables["PRESIM_LOG_DIR"]
        variables["PRESIM_BENCHMARK_OUT"] = str(out)
        run([sys.executable, SCRIPT], env=variables)
        return float(out.read_text())


def captured() -> float:
    """Seconds of a step under `presim run`, after a check that the step was captured completely."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "seconds"
        os.environ["PRESIM_BENCHMARK_OUT"] = str(out)
        request = CaptureRequest(Launch(str(SCRIPT), ()), Selection((0,)), steps=0, script_stdout=subprocess.DEVNULL)
        (trace,) = capture(request, CLUSTER).traces
        if trace.manifest.exit != "ok":
            raise InputError(f"{SCRIPT} did not end well under presim: {trace.manifest.error}")
        steps = [int((trace.columns["kind"][step] == Kind.WORK).sum()) for step in trace.steps()]
        assert len(steps) == 10, steps
        assert steps[3] == steps[-1] > 1000, steps
        assert all(trace.columns["operator"][trace.mask(Kind.WORK)] >= 0), "every launch has an operator"
        return float(out.read_text())


def main() -> None:
    """Prints one row per pair and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=at_least_one("times"), default=3, metavar="N")
    pairs = [(bare(), captured()) for _ in range(parser.parse_args().pairs)]
    print("| bare, ms | captured, ms | ratio |\n|---|---|---|")
    for plain, recorded in pairs:
        print(f"| {plain * 1e3:.1f} | {recorded * 1e3:.1f} | {recorded / plain:.2f} |")
    ratio = statistics.median(recorded / plain for plain, recorded in pairs)
    print(f"\nmedian captured step {statistics.median(pair[1] for pair in pairs) * 1e3:.1f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    with sentences():
        main()
