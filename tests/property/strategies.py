"""Traces for property tests: any mixture of entries that a program could have asked for."""

from __future__ import annotations

from hypothesis import strategies as st

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
