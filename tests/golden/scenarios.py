"""Small programs whose timelines are kept: each shows one rule of the simulation, with round numbers."""

from __future__ import annotations

from collections.abc import Callable

from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.calls import CallCosts
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Collective, Copy, Kernel, Signature

CALLS = CallCosts(launch=10, product=10, transfer=10, collective=10, event=1)
OPTIONS = Options(calls=CALLS, launch_latency_ns=100, sync_latency_ns=50, queue_depth=1024)


def kernel(duration_ns: int) -> Kernel:
    """A kernel that takes this long."""
    return Kernel(name=str(duration_ns), grid=(1, 1, 1), block=(1, 1, 1))


def builder(rank: int = 0, world_size: int = 1, priorities: dict[int, int] | None = None) -> TraceBuilder:
    """A trace of one rank of a job with a single group of everybody."""
    ranks = tuple(range(world_size))
    return TraceBuilder(
        Manifest(
            world_size=world_size,
            rank=rank,
            gpu="h100-sxm",
            gpus_per_node=8,
            script="",
            groups=(Group(name="world", ranks=ranks, size=world_size),),
            stream_priorities=priorities or {},
        )
    )


def priced(build: TraceBuilder) -> PricedTrace:
    """Kernels take what their names say, a byte a nanosecond otherwise."""
    trace = build.trace()
    return PricedTrace(trace, tuple(_price(signature) for signature in trace.signatures))


def _price(signature: Signature) -> Price:
    duration = int(signature.name) if isinstance(signature, Kernel) else int(getattr(signature, "bytes", 0))
    return Price(duration_ns=duration, origin=Origin.ANALYTIC, uncertainty=0.0, estimator="by name")


def launch_bound() -> list[PricedTrace]:
    """The host takes 200 ns for each kernel of 50 ns."""
    build = builder()
    for _ in range(4):
        build.work(kernel(50), host_ns=190)
    build.device_sync()
    return [priced(build)]


def prefetched_all_gather() -> list[PricedTrace]:
    """The gather of the next layer beside the compute of this one, as FSDP does it."""
    build = builder(world_size=2)
    gathered = 0
    for _ in range(3):
        build.work(Collective(kind="all_gather", bytes=800, dtype="bfloat16", group=0), stream=1, host_ns=20)
        gathered, before = build.record(stream=1), gathered
        build.wait(before, stream=0)
        build.work(kernel(1_000), host_ns=20)
    build.wait(gathered, stream=0)
    build.work(kernel(1_000), host_ns=20)
    build.device_sync()
    return [priced(build)]


def urgent_stream() -> list[PricedTrace]:
    """A stream of higher priority takes the device first, and does not interrupt."""
    build = builder(priorities={2: -5})
    for _ in range(3):
        build.work(kernel(500))
    for _ in range(2):
        build.work(kernel(100), stream=1)
        build.work(kernel(100), stream=2)
    return [priced(build)]


def copies_beside_compute() -> list[PricedTrace]:
    """Each direction of copies is one engine; the host waits for the loss."""
    build = builder()
    build.work(Copy(direction="h2d", bytes=700), stream=1)
    build.work(Copy(direction="h2d", bytes=700), stream=2)
    copied = build.record(stream=1)
    build.work(kernel(300))
    build.wait(copied, stream=0)
    build.work(kernel(300))
    build.work(Copy(direction="d2h", bytes=400), stream=0)
    build.stream_sync(stream=0)
    build.work(kernel(300), host_ns=30)
    return [priced(build)]


def two_stage_pipeline() -> list[PricedTrace]:
    """Forward of two micro-batches over two stages: the second one waits, which is the bubble."""
    first, second = builder(0, 2), builder(1, 2)
    for launch in (1, 2):
        first.work(kernel(1_000), host_ns=10)
        first.wait(first.record(stream=0), stream=1)
        message = Collective(kind="send", bytes=200, dtype="bfloat16", group=0, peer=1)
        first.work(message, stream=1, launch_group=launch)
        message = Collective(kind="recv", bytes=200, dtype="bfloat16", group=0, peer=0)
        second.work(message, stream=1, launch_group=launch)
        second.wait(second.record(stream=1), stream=0)
        second.work(kernel(1_000), host_ns=10)
    first.device_sync()
    second.device_sync()
    return [priced(first), priced(second)]


def exchange_in_one_launch() -> list[PricedTrace]:
    """Both ranks send before they receive, in one group call: no deadlock, and both directions at once."""
    job = []
    for rank in (0, 1):
        build = builder(rank, 2)
        build.work(kernel(300 * (rank + 1)), stream=1)
        for kind in ("send", "recv"):
            message = Collective(kind=kind, bytes=400, dtype="bfloat16", group=0, peer=1 - rank)
            build.work(message, stream=1, launch_group=7)
        build.work(kernel(100), stream=1)
        job.append(priced(build))
    return job


SCENARIOS: dict[str, Callable[[], list[PricedTrace]]] = {
    scenario.__name__: scenario
    for scenario in (
        launch_bound,
        prefetched_all_gather,
        urgent_stream,
        copies_beside_compute,
        two_stage_pipeline,
        exchange_in_one_launch,
    )
}
