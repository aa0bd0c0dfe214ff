"""Traces for property tests: any mixture of entries that a program could have asked for."""

from __future__ import annotations

from hypothesis import strategies as st

from presim.cost.price import Origin, Price, PricedTrace
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Category, Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Copy, Elementwise, Gemm, Signature

names = st.text(max_size=8)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """A manifest with something in every field that may hold something."""
    return Manifest(
        world_size=8,
        rank=draw(st.integers(0, 7)),
        gpu=draw(names),
        gpus_per_node=draw(st.integers(1, 8)),
        script=draw(names),
        groups=tuple(draw(st.lists(st.builds(Group, name=names, ranks=st.just((0, 1)), size=st.just(2)), max_size=2))),
        versions=draw(st.dictionaries(names, names, max_size=2)),
        stream_priorities=draw(st.dictionaries(st.integers(0, 3), st.integers(-5, 0), max_size=4)),
        notes=tuple(draw(st.lists(names, max_size=2))),
    )


signatures: st.SearchStrategy[Signature] = st.one_of(
    st.builds(Gemm, m=st.integers(1, 9), n=st.just(8), k=st.just(8), batch=st.just(1), dtype=st.just("bfloat16")),
    st.builds(Copy, direction=st.sampled_from(["h2d", "d2h", "d2d", "memset"]), bytes=st.integers(0, 9)),
    st.builds(
        Elementwise,
        bytes_read=st.integers(0, 9),
        bytes_written=st.just(1),
        elements=st.just(1),
        dtype=st.just("float32"),
    ),
    st.builds(
        Collective,
        kind=st.sampled_from(["all_reduce", "all_gather"]),
        bytes=st.integers(0, 9),
        dtype=st.just("float32"),
        group=st.integers(0, 1),
    ),
)
times_ns = st.integers(0, 20)


@st.composite
def traces(draw: st.DrawFn, max_size: int = 40) -> Trace:
    """A trace of work on a few streams with every kind of synchronisation between it."""
    build = TraceBuilder(draw(manifests()))
    recordings = [0]  # serial 0: an event nobody recorded yet
    streams = st.integers(0, 3)
    for _ in range(draw(st.integers(0, max_size))):
        host_ns = draw(times_ns)
        match draw(st.sampled_from(["work"] * 4 + ["record", "wait", "wait", "event", "stream", "device", "memory"])):
            case "work":
                build.work(
                    draw(signatures),
                    stream=draw(streams),
                    host_ns=host_ns,
                    scope=draw(names),
                    operator=draw(names),
                    phase=draw(st.sampled_from(Phase)),
                )
            case "record":
                recordings.append(build.record(stream=draw(streams), host_ns=host_ns))
            case "wait":
                build.wait(draw(st.sampled_from(recordings)), stream=draw(streams), host_ns=host_ns)
            case "event":
                build.event_sync(draw(st.sampled_from(recordings)), host_ns=host_ns)
            case "stream":
                build.stream_sync(stream=draw(streams), host_ns=host_ns)
            case "device":
                build.device_sync(host_ns=host_ns)
            case "memory":
                build.alloc(draw(st.integers(0, 2**62)), 512, host_ns=host_ns, category=draw(st.sampled_from(Category)))
                build.step(host_ns=host_ns)
    return build.trace()


@st.composite
def priced(draw: st.DrawFn, source: st.SearchStrategy[Trace]) -> PricedTrace:
    """A trace with a duration for each signature, among them zero and equal ones."""
    trace = draw(source)
    shortest = draw(st.sampled_from([0, 1]))
    return PricedTrace(trace, tuple(_price(draw(st.integers(shortest, 30))) for _ in trace.signatures))


def _price(duration_ns: int) -> Price:
    return Price(duration_ns=duration_ns, origin=Origin.ANALYTIC, uncertainty=0.1, estimator="test")


@st.composite
def jobs(draw: st.DrawFn) -> list[PricedTrace]:
    """Two to four ranks that do different work between the same sequence of meetings."""
    size = draw(st.integers(2, 4))
    everyone = tuple(range(size))
    group_ranks = [everyone, everyone[:2], everyone]  # two communicators with the same members
    groups = tuple(Group(name=f"g{index}", ranks=ranks, size=len(ranks)) for index, ranks in enumerate(group_ranks))
    builders = [
        TraceBuilder(Manifest(world_size=size, rank=rank, gpu="", gpus_per_node=8, script="", groups=groups))
        for rank in everyone
    ]
    # A group's stream is the same everywhere, as in PyTorch; two groups may share one.
    streams = draw(st.lists(st.integers(1, 3), min_size=4, max_size=4))
    for meeting in range(draw(st.integers(0, 8))):
        for build in builders:
            _between(draw, build)
        if draw(st.booleans()):
            _collective(draw, builders, group_ranks, streams)
        else:
            _pairs(draw, builders, streams[3], meeting + 1)
    for build in builders:
        build.device_sync()
    return [draw(priced(st.just(build.trace()))) for build in builders]


def _between(draw: st.DrawFn, build: TraceBuilder) -> None:
    for _ in range(draw(st.integers(0, 3))):
        build.work(
            Copy(direction=draw(st.sampled_from(["h2d", "memset"])), bytes=draw(st.integers(0, 3))),
            stream=draw(st.integers(0, 3)),
            host_ns=draw(times_ns),
        )
    if draw(st.booleans()):
        build.wait(build.record(stream=draw(st.integers(0, 3))), stream=draw(st.integers(0, 3)))
    if draw(st.integers(0, 3)) == 0:
        build.stream_sync(stream=draw(st.integers(0, 3)), host_ns=draw(times_ns))


def _collective(
    draw: st.DrawFn, builders: list[TraceBuilder], groups: list[tuple[int, ...]], streams: list[int]
) -> None:
    group = draw(st.integers(0, len(groups) - 1))
    call = Collective(kind="all_reduce", bytes=draw(st.integers(0, 3)), dtype="float32", group=group)
    for rank in groups[group]:
        builders[rank].work(call, stream=streams[group], host_ns=draw(times_ns))


def _pairs(draw: st.DrawFn, builders: list[TraceBuilder], stream: int, launch: int) -> None:
    """A ring in which everybody sends and receives in one launch, in either order; or one message alone."""
    size = len(builders)
    if draw(st.booleans()):
        here, there = draw(st.permutations(range(size)))[:2]
        builders[here].work(_message("send", there), stream=stream, host_ns=draw(times_ns))
        builders[there].work(_message("recv", here), stream=stream, host_ns=draw(times_ns))
        return
    for rank, build in enumerate(builders):
        calls = [_message("send", (rank + 1) % size), _message("recv", (rank - 1) % size)]
        for call in draw(st.permutations(calls)):
            build.work(call, stream=stream, launch_group=launch)


def _message(kind: str, peer: int) -> Collective:
    return Collective(kind=kind, bytes=8, dtype="float32", group=0, peer=peer)
