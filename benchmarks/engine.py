"""Benchmark of the engine and the trace store. Each result is checked before it is timed.

    PYTHONPATH=src:tests python benchmarks/engine.py [--write]

``--write`` writes the table to benchmarks/results/engine.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.util
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from presim.cli.script import sentences
from presim.cost.overlap import Demand
from presim.cost.price import Origin, Price, PricedTrace
from presim.engine import loop
from presim.engine.calls import NO_CALLS
from presim.engine.compiled_loop import compiled_run
from presim.engine.program import build_program, initial_state
from presim.engine.simulate import simulate, simulate_job
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.system.files import check_writable, write_file
from presim.trace import job_store
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest, Phase
from presim.trace.signatures import Collective, Elementwise, Gemm, Signature

RESULTS = pathlib.Path(__file__).parent / "results" / "engine.md"
LAYERS = 80


def fsdp_step(entries: int, rank: int = 0, ranks: int = 1, memory: bool = True) -> PricedTrace:
    """Layers of kernels on stream 0 with allocations between them, and prefetched all-gathers on stream 1."""
    group = Group(name="world", ranks=tuple(range(ranks)), size=ranks)
    build = TraceBuilder(
        Manifest(world_size=ranks, rank=rank, gpu="h100-sxm", gpus_per_node=8, script="", groups=(group,))
    )
    gather = Collective(kind="all_gather", bytes=1 << 28, dtype="bfloat16", group=0)
    kernels: list[Signature] = [Gemm(m=index + 1, n=64, k=64, batch=1, dtype="bfloat16") for index in range(150)]
    kernels += [Elementwise(bytes_read=index, bytes_written=1, elements=1, dtype="float32") for index in range(150)]
    random = np.random.default_rng(0)
    addresses = (random.integers(0, 1 << 20, size=400) * 512 + 0x7F0000000000).tolist()
    host_ns = random.gamma(2, 1_500, size=entries).astype(int).tolist()
    count, layer = 0, 0
    while count < entries:
        scope = f"model.layers.{layer % LAYERS}"
        build.work(gather, stream=1, host_ns=host_ns[count], scope=scope, operator="c10d::_allgather_base_")
        build.wait(build.record(stream=1), stream=0)
        count, layer = count + 3, layer + 1
        for at in range(min(300, entries - count)):
            build.work(kernels[at], host_ns=host_ns[count % entries], scope=f"{scope}.{at % 15}", phase=Phase.FORWARD)
            count += 1
            if memory:
                build.alloc(addresses[(at * 7) % 400], 512 * at, host_ns=100, scope=f"{scope}.{at % 15}")
                build.free(addresses[(at * 7) % 400], 512 * at, host_ns=100)
                count += 2
    trace = build.trace()
    return PricedTrace(trace, tuple(_price(index) for index in range(len(trace.signatures))))


def _demands(item: PricedTrace) -> tuple[Demand, ...]:
    """Resource demands: collectives with SMs and a quarter of memory bandwidth, and kernels of various intensities."""
    beside = Demand(channels=0.125, memory=0.25, port_out=1.0)
    return tuple(
        beside if isinstance(signature, Collective) else Demand(arithmetic=index % 2, memory=index % 64 / 64)
        for index, signature in enumerate(item.trace.signatures)
    )


def _price(index: int) -> Price:
    return Price(duration_ns=4_000 + 37 * index, origin=Origin.ANALYTIC, uncertainty=0.1, estimator="benchmark")


def best_of(times: int, work: Callable[[], object]) -> float:
    """CPU seconds of the fastest run. Other programs on the machine do not count."""
    taken = []
    for _ in range(times):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return min(taken)


def check() -> None:
    """Check that both loops give the same times, and the expected ones for a single stream."""
    small = fsdp_step(5_000)
    compiled, interpreted = simulate(small, compiled=True), simulate(small, compiled=False)
    assert np.array_equal(compiled.end_ns, interpreted.end_ns)
    build = TraceBuilder()
    for _ in range(1_000):
        build.work(Gemm(m=1, n=1, k=1, batch=1, dtype="float32"))
    row = simulate(PricedTrace(build.trace(), (_price(0),)), options=Options(calls=NO_CALLS), compiled=True)
    assert row.makespan_ns == Options().launch_latency_ns + 1_000 * 4_000


def loop_rates() -> list[tuple[str, str]]:
    """Entries per second of the whole simulation, and of the loop within it."""
    large = fsdp_step(1_000_000, memory=False)
    usual = fsdp_step(1_000_000)
    program = build_program([large], Options())
    ops = len(program.columns["code"])

    def run() -> None:
        state = initial_state(program)
        compiled_run()(loop.Program(**program.columns), loop.LoopState(**state))  # type: ignore[arg-type]  # arrays

    whole = best_of(5, lambda: simulate(large, compiled=True))
    with_memory = best_of(5, lambda: simulate(usual, compiled=True))
    inner = best_of(5, run)
    job = [fsdp_step(60_000, rank, 16) for rank in range(16)]
    together = best_of(5, lambda: simulate_job(job, compiled=True))
    contended = dataclasses.replace(large, demands=_demands(large))
    slowed = best_of(5, lambda: simulate(contended, compiled=True))
    small = fsdp_step(40_000)
    interpreted = best_of(5, lambda: simulate(small, compiled=False))
    million = 1e-6
    return [
        (f"one rank, {ops:,} entries, all of them on streams: simulate()", _rate(ops, whole)),
        ("the compiled loop alone, same job", f"{ops / inner * million:.1f} million ops/s ({inner:.3f} s)"),
        ("one rank, as many, two of three of them allocations: simulate()", _rate(len(usual.trace), with_memory)),
        ("one rank, all entries on streams, each kernel slowed by a collective: simulate()", _rate(ops, slowed)),
        (
            "16 ranks of 60,000 entries that meet in every collective: simulate_job()",
            _rate(sum(len(item.trace) for item in job), together),
        ),
        ("interpreted, 40,000 entries: simulate()", _rate(len(small.trace), interpreted)),
    ]


def _rate(entries: int, seconds: float) -> str:
    return f"{entries / seconds / 1e6:.2f} million entries/s ({seconds:.3f} s)"


def start_up() -> list[tuple[str, str]]:
    """Time of the first simulation in a new process."""
    entry = "from golden.scenarios import launch_bound; from presim.engine.simulate import simulate_job\n"
    run = "begin = time.process_time(); simulate_job(launch_bound(), compiled=True); print(time.process_time() - begin)"
    with tempfile.TemporaryDirectory() as cache:
        first = _fresh(f"import time; {entry}{run}", NUMBA_CACHE_DIR=cache)
        cached = min(_fresh(f"import time; {entry}{run}", NUMBA_CACHE_DIR=cache) for _ in range(3))
    imported = min(
        _fresh(
            "from time import process_time as now\nbegin = now()\nimport presim.engine.simulate\nprint(now() - begin)"
        )
        for _ in range(3)
    )
    return [
        ("`import presim.engine.simulate`, fresh process", f"{imported:.3f} s"),
        ("first compiled simulation, fresh process, loop in the disk cache (with importing numba)", f"{cached:.2f} s"),
        ("first compiled simulation, nothing cached", f"{first:.2f} s"),
    ]


def _fresh(script: str, **environment: str) -> float:
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(run.stdout)


def store_rates() -> list[tuple[str, str]]:
    """A large step on disk."""
    trace = fsdp_step(120_000).trace
    with tempfile.TemporaryDirectory() as folder:
        writing = best_of(5, lambda: job_store.save([trace], folder))
        (path,) = pathlib.Path(folder).glob("rank-*.parquet")
        assert np.array_equal(job_store.load(folder).traces[0].columns["object"], trace.columns["object"])
        reading = best_of(5, lambda: job_store.load(folder))
        size = path.stat().st_size / 1e6
    return [
        (f"store: {len(trace):,} entries, {len(trace.signatures)} signatures, 1,200 scopes", f"{size:.2f} MB"),
        ("store: write", f"{writing * 1e3:.0f} ms"),
        ("store: read, with its digest checked", f"{reading * 1e3:.0f} ms"),
    ]


def main() -> None:
    """Measure, print, and write the table if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS}")
    options = parser.parse_args()
    if importlib.util.find_spec("golden") is None:
        raise InputError("the scenarios of the tests cannot be imported; run it with PYTHONPATH=src:tests")
    if options.write:
        check_writable(RESULTS)
    check()
    load = os.getloadavg()[0]
    rows = [*loop_rates(), *start_up(), *store_rates()]
    machine = f"{os.cpu_count()}-core {platform.machine()} VM ({_processor()}), Python {platform.python_version()}"
    text = (
        f"# Engine and trace store\n\n{datetime.date.today()}, {machine}.\n"
        "CPU time of one process, best of several runs.\n"
        f"Load of the machine as it began: {load:.1f}, from other work: it costs caches and clock speed.\n"
        "Made by `PYTHONPATH=src:tests python benchmarks/engine.py --write`.\n\n| what | measured |\n|---|---|\n"
        + "".join(f"| {what} | {measured} |\n" for what, measured in rows)
    )
    sys.stdout.write(text)
    if options.write:
        write_file(RESULTS, text.encode())


def _processor() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    with sentences():
        main()
