"""A small job of two ranks, simulated and written as PyTorch's profiler would have recorded it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from presim.engine.ops import host_ns
from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.hardware import Cluster, choose_cluster
from presim.report import kineto
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Copy, Elementwise, Gemm, Kernel

CLUSTER = choose_cluster(gpu="h100-sxm", world_size=2)


def program(rank: int, steps: int = 3, layers: int = 6) -> Trace:
    """A step of products and a collective on a stream of its own, which the optimizer waits for."""
    groups = (Group("dp", (0, 1), 2),)
    build = TraceBuilder(
        Manifest(
            world_size=2, rank=rank, gpu="h100-sxm", gpus_per_node=2, script="t.py", groups=groups, node="hgx-h100"
        )
    )
    for _ in range(steps):
        build.work(Copy("h2d", 1 << 20, pinned=True), host_ns=20_000)
        for layer in range(layers):
            size = 1024 * (1 + layer % 3)
            build.work(
                Gemm(size, 4096, 4096, 1, "bfloat16"), host_ns=9_000 + 500 * rank, operator="aten::mm",
                phase=Phase.FORWARD,
            )  # fmt: skip
            moved = Elementwise(size << 13, size << 13, size << 12, "bfloat16", operator="aten::silu")
            build.work(moved, host_ns=6_000, operator="aten::silu", phase=Phase.BACKWARD)
            done = build.record(stream=0, host_ns=1_000)
            build.wait(done, stream=1, host_ns=500)
            build.work(Collective("all_reduce", 8 << 20, "bfloat16", 0), stream=1, host_ns=4_000)
        reduced = build.record(stream=1)
        build.wait(reduced, stream=0)
        build.work(Kernel("mystery", (64, 1, 1), (128, 1, 1)), host_ns=5_000, phase=Phase.OPTIMIZER)
        build.stream_sync(stream=0, host_ns=2_000)
        build.step(host_ns=30_000)
    return build.trace()


def simulated(cluster: Cluster = CLUSTER) -> Evaluation:
    """Both ranks."""
    return evaluate(Job.of([program(0), program(1)]), cluster, Options(host_factor=1.0))


def exported(folder: Path, evaluation: Evaluation) -> list[Path]:
    """The profiles of a simulated job."""
    host = {rank: host_ns(priced.trace, evaluation.options) for rank, priced in evaluation.ranks.items()}
    speak = evaluation.representatives
    return kineto.write(evaluation.ranks, evaluation.timelines, host, speak, evaluation.cluster, folder)


def content(path: Path) -> dict[str, Any]:
    """A profile's JSON."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def as_pytorch(path: Path, *, waits: bool = True, shapes: bool = True) -> Path:
    """The profile without what only presim writes; ``waits``, ``shapes``: with what PyTorch records when asked."""
    body = content(path)
    del body["presim"]
    events = [event for event in body["traceEvents"] if waits or event.get("cat") != "cuda_sync"]
    for event in events:
        dropped = () if shapes else ("Input Dims", "Input type")
        args = event.get("args", {})
        event["args"] = {key: args[key] for key in args if not key.startswith("presim") and key not in dropped}
    target = path.with_name(path.name.removesuffix(".gz"))
    target.write_text(json.dumps({**body, "traceEvents": events}))
    path.unlink()
    return target
