"""Benchmark of networks and large jobs. Each result is checked before it is timed.

    PYTHONPATH=src:tests python benchmarks/scale.py [--write]

``--write`` writes the table to benchmarks/results/scale.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import platform
import resource
import time
from collections.abc import Callable

import msgspec

from presim.cli.script import sentences
from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.what_if import changes_of
from presim.hardware import choose_cluster
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.exchange import Exchange, run
from presim.system.files import write_file
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Attention, Collective, Elementwise, Gemm, Signature

RESULTS = pathlib.Path(__file__).parent / "results" / "scale.md"
GIB = 1 << 30
TENSOR, STAGES, LAYERS, MICRO_BATCHES = 8, 16, 126, 64


def timed(work: Callable[[], object]) -> float:
    """CPU seconds of the second run. The first one compiles or loads inner loops."""
    work()
    begin = time.process_time()
    work()
    return time.process_time() - begin


def all_to_all(gpus: int, **network: object) -> tuple[str, str]:
    """An all-to-all over all GPUs, checked against the ports' bandwidth."""
    cluster = choose_cluster(gpu="h100-sxm", world_size=gpus)
    topology = topology_of(cluster, network)
    exchange = [Exchange("all_to_all", GIB, tuple(range(gpus)))]
    outcome = run(topology, exchange)
    assert outcome.seconds[0] >= (gpus - 8) / gpus * GIB / 50e9
    assert outcome.shared is not None
    taken = timed(lambda: run(topology, exchange))
    shape = f"{len(outcome.flows.bytes):,} flows in {outcome.shared.classes:,} classes"
    return f"all-to-all of {gpus:,} GPUs, {network}: {shape}", f"{taken:.1f} s"


def megatron_rank(stage: int, world: int) -> Trace:
    """The first rank of a stage of a 405B-like job: TP8, PP16, 1F1B over 64 micro-batches, DP over the rest."""
    data = world // TENSOR // STAGES
    rank = stage * TENSOR * data
    tensor = tuple(range(rank, rank + TENSOR))
    replicas = tuple(rank + place * TENSOR for place in range(data))
    pipe = tuple(number * TENSOR * data for number in range(STAGES))
    groups = tuple(Group(name, ranks, len(ranks)) for name, ranks in (("tp", tensor), ("dp", replicas), ("pp", pipe)))
    build = TraceBuilder(
        Manifest(
            world_size=world, rank=rank, gpu="h100-sxm", gpus_per_node=8, script="", groups=groups, reference_host=True
        )
    )
    layers = LAYERS // STAGES + (stage < LAYERS % STAGES)
    warm_up = min(STAGES - 1 - stage, MICRO_BATCHES)
    for number in range(warm_up):
        _pass(build, stage, layers, Phase.FORWARD, number)
    for number in range(MICRO_BATCHES - warm_up):
        _pass(build, stage, layers, Phase.FORWARD, number + warm_up)
        _pass(build, stage, layers, Phase.BACKWARD, number)
    for number in range(MICRO_BATCHES - warm_up, MICRO_BATCHES):
        _pass(build, stage, layers, Phase.BACKWARD, number)
    build.work(Collective("all_reduce", layers * 3_200_000_000 // TENSOR * 2, "bfloat16", 1), phase=Phase.BACKWARD)
    build.step()
    return build.trace()


def _pass(build: TraceBuilder, stage: int, layers: int, phase: Phase, number: int) -> None:
    forward = phase is Phase.FORWARD
    before, after = (stage - 1, stage + 1) if forward else (stage + 1, stage - 1)
    message = 8192 * 16384 * 2 // TENSOR
    if 0 <= before < STAGES:
        build.work(Collective("recv", message, "bfloat16", 2, peer=before), stream=2 if forward else 4, phase=phase)
        build.wait(build.record(stream=2 if forward else 4), stream=0)
    for _ in range(layers):
        for signature in _layer(2 if phase is Phase.BACKWARD else 1):
            build.work(signature, phase=phase, host_ns=2_000)
        build.wait(build.record(stream=0), stream=1)
        build.work(Collective("all_reduce", 8192 * 16384 * 2, "bfloat16", 0), stream=1, phase=phase)
        build.wait(build.record(stream=1), stream=0)
    if 0 <= after < STAGES:
        build.wait(build.record(stream=0), stream=3 if forward else 5)
        build.work(Collective("send", message, "bfloat16", 2, peer=after), stream=3 if forward else 5, phase=phase)


def _layer(times: int) -> list[Signature]:
    products = [Gemm(8192, 18432 // TENSOR, 16384, 1, "bfloat16"), Gemm(8192, 16384, 16384 // TENSOR, 1, "bfloat16")]
    products += [Gemm(8192, 106496 // TENSOR, 16384, 1, "bfloat16"), Gemm(8192, 16384, 53248 // TENSOR, 1, "bfloat16")]
    small = [Elementwise(8192 * 16384 * 2, 8192 * 16384 * 2, 8192 * 16384, "bfloat16", operator="aten::add")] * 10
    attention = Attention("forward", 1, 16, 1, 8192, 8192, 128, 128, True, "bfloat16", "flash")
    return [*products * times, attention, *small]


def job(world: int, **network: object) -> tuple[str, str]:
    """Price and simulate a job by its 16 different ranks, then again with a slow node; ``network``: its description."""
    begin = time.process_time()
    traces = [megatron_rank(stage, world) for stage in range(STAGES)]
    built = time.process_time() - begin
    size = world // STAGES
    others = {trace.manifest.rank: range(trace.manifest.rank + 1, trace.manifest.rank + size) for trace in traces}
    cluster = msgspec.structs.replace(choose_cluster(gpu="h100-sxm", world_size=world), network=network)
    options = Options(host_factor=0.0)

    def predict(*stragglers: str) -> Evaluation:
        return evaluate(Job(traces, others), cluster, options, changes=changes_of((), stragglers, ()))

    predict()  # loads inner loops
    begin = time.process_time()
    result = predict().result
    taken = time.process_time() - begin
    begin = time.process_time()
    slow = predict(f"node{cluster.nodes - 1}=0.8").result
    slowed = time.process_time() - begin
    assert result.step_time_s is not None
    assert slow.step_time_s is not None
    assert slow.step_time_s > result.step_time_s
    assert len(slow.ranks) == STAGES + 1
    assert not network or result.time.shared_ports_s > 0
    bubble = (MICRO_BATCHES + STAGES - 1) / MICRO_BATCHES
    assert result.step_time_s > bubble * 0.8 * result.ranks[0].compute_s
    entries = sum(map(len, traces))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    shape = f"405B-like, TP8 PP16 DP{world // 128}, {world:,} GPUs, composed by the benchmark"
    shape += f", {network}" if network else ""
    return (
        f"{shape}: {entries:,} entries on 16 ranks, step {result.step_time_s:.2f} s",
        (
            f"{taken:.1f} s; with a slow node {slowed:.1f} s, step {slow.step_time_s:.2f} s; {memory:.1f} GB at most "
            f"(traces made in {built:.0f} s)"
        ),
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/results/scale.md")
    write = parser.parse_args().write
    load = os.getloadavg()[0]
    rows = [
        all_to_all(1_024, fabric="rail", leaf_nodes=32),
        all_to_all(1_024, fabric="fat-tree", leaf_nodes=8, oversubscription=2.0),
        job(16_384),
        job(100_352),
        job(1_024, fabric="fat-tree", leaf_nodes=4, oversubscription=8.0),
        job(16_384, fabric="fat-tree", leaf_nodes=4, oversubscription=8.0),
    ]
    table = "\n".join(f"| {what} | {measured} |" for what, measured in rows)
    machine = f"{os.cpu_count()}-core {platform.machine()} VM, Python {platform.python_version()}"
    machine += f", load {load:.1f} from other work"
    text = (
        "# Networks and large jobs\n\n"
        f"{datetime.date.today()}, {machine}. CPU time of one process; inner loops are compiled already.\n"
        "Made by `PYTHONPATH=src:tests python benchmarks/scale.py --write`.\n\n"
        f"| what | measured |\n|---|---|\n{table}\n"
    )
    print(text)
    if write:
        write_file(RESULTS, text.encode())


if __name__ == "__main__":
    with sentences():
        main()
