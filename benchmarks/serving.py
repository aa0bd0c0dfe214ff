"""Benchmark of the compiled scheduler: steps per second, 1,000 Mooncake-like requests, 1 million on 64 replicas.

Each run is checked before its time is printed. Times are CPU time, which other processes hardly change.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from presim.hardware.cluster_choice import choose_cluster
from presim.serving.engines.engine import Fleet, Life, Limits, Replica, Scaling, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_state
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import build
from presim.serving.workloads.workload import Workload, make


def timed(name: str, workload: Workload, fleet: Fleet) -> Served:
    """Serve, check, print. --changing and --steady run one case alone, for its peak memory."""
    begin = time.process_time()
    served = simulate(workload, fleet)
    took = time.process_time() - begin
    assert served.finished.all()
    assert served.gaps[:, 1].sum() + len(workload) == workload.output.sum()
    steps, peak = len(served.steps), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    batch = served.steps[:, serving_state.LOG_SEQS].mean()
    print(
        f"| {name} | {len(workload):,} | {int(workload.output.sum()):,} | {steps:,} | {batch:.0f} | {took:.1f} | "
        f"{steps / took:,.0f} | {peak:.1f} |"
    )
    return served


def main() -> None:
    """Print a table."""
    rng = np.random.default_rng(0)
    limits = Limits(num_gpu_blocks=28_000)
    engine = Replica(limits, constant_times(1e7, limits))
    simulate(make("warm", np.zeros(1), np.ones(1), np.ones(1)), Fleet((engine,)))  # compiles, or loads
    print("| run | requests | output tokens | steps | mean batch | CPU s | steps/s | peak GiB |")
    print("|---|---|---|---|---|---|---|---|")
    count = 20_000
    arrival = np.cumsum(rng.exponential(6e7, count)).astype(np.int64)
    one = make("one", arrival, rng.integers(100, 2000, count), rng.integers(50, 400, count))
    timed("one engine", one, Fleet((engine,)))
    llama = build(find("llama3-70b"), ServingPlan(tp=8), choose_cluster(gpu="h100-sxm", world_size=8))
    prompts = np.minimum(rng.lognormal(8.7, 1.0, 1000).astype(np.int64) + 16, 100_000)
    pieces = prompts // 512
    chains = rng.integers(0, 200, 1000)
    ids = np.concatenate([chain * 1000 + np.arange(piece) for chain, piece in zip(chains, pieces)])
    mooncake = make(
        "mooncake", np.cumsum(rng.exponential(2.5e8, 1000)).astype(np.int64), prompts, rng.integers(1, 700, 1000),
        segment_first=np.concatenate([[0], np.cumsum(pieces)]), segments=ids, segment_tokens=512,
    )  # fmt: skip
    timed("1,000 long prompts that share prefixes", mooncake, Fleet((Replica(llama.limits, llama.times),)))
    if "--quick" in sys.argv:
        return
    count = 1_000_000
    arrival = np.cumsum(rng.exponential(1e6, count)).astype(np.int64)
    many = make("fleet", arrival, rng.integers(100, 1500, count), rng.integers(50, 350, count))
    life = Life(Scaling(32, 64, interval_s=5.0, cooldown_s=60.0), start_s=10.0, mtbf_h=1.0)
    if "--changing" not in sys.argv:
        timed("64 replicas, least loaded", many, Fleet((engine,) * 64, "least-loaded"))
    if "--steady" not in sys.argv:
        served = timed("64 replicas, autoscaled, failing", many, Fleet((engine,) * 64, "least-loaded", life=life))
        assert (served.events[:, 2] == serving_state.FAILED).any()


if __name__ == "__main__":
    main()
