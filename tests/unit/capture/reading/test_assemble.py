"""From a capture log to a trace."""

from __future__ import annotations

from presim.capture.reading.assemble import assemble
from presim.trace.builder import default_manifest
from presim.trace.schema import Category, Kind, Phase
from presim.trace.signatures import Collective, Elementwise, Gemm
from support.capture_logs import LogBuilder

ADD = "op name=aten::add in=Float[1000],Float[1000] out=Float[1000] args="
KERNEL = "kernel name=add grid=10,1,1 block=128,1,1 shared=0"
GEMM = "gemm m=8 n=4 k=2 batch=1 a=bf16 b=bf16 c=bf16 d=bf16 compute=f32 transa=T transb=N beta=0 epilogue=none"


def test_a_launch_has_its_operator_module_and_phase() -> None:
    build = LogBuilder()
    build.record(Kind.WORK, work=KERNEL, op=ADD, scope="scope name=Net.layer", phase=Phase.FORWARD, value=1)
    trace = assemble(build.log(), default_manifest())
    assert trace.signatures == (Elementwise(8000, 4000, 1000, "float32", operator="aten::add"),)
    assert (trace.scopes, trace.operators) == (("Net.layer",), ("aten::add",))
    assert trace.columns["phase"].tolist() == [Phase.FORWARD]


def test_kernels_of_one_operator_call_share_its_bytes_by_their_threads() -> None:
    build = LogBuilder()
    for blocks in (10, 30):
        kernel = f"kernel name=add grid={blocks},1,1 block=128,1,1 shared=0"
        build.record(Kind.WORK, work=kernel, op=ADD, value=7)
    moved = [signature.bytes for signature in assemble(build.log(), default_manifest()).signatures]
    assert moved == [3000, 9000]


def test_host_time_is_the_cpu_time_between_entries() -> None:
    build = LogBuilder()
    for cpu_ns in (1_000, 1_500, 4_000):
        build.record(Kind.WORK, work=GEMM, cpu_ns=cpu_ns)
    assert assemble(build.log(), default_manifest()).columns["host_ns"].tolist() == [0, 500, 2_500]


def test_the_first_entry_of_a_replay_represents_the_graph_launch() -> None:
    """Three launches of a graph with three kernels, each recorded at one time; the host took none for the last."""
    build = LogBuilder()
    for cpu_ns in (100, 900, 900):
        for kernel in range(3):
            build.record(Kind.WORK, work=GEMM, cpu_ns=cpu_ns, tag=int(kernel > 0))
    trace = assemble(build.log(), default_manifest())
    assert trace.columns["value"].tolist() == [0, 1, 1] * 3


def test_collectives_are_named_after_their_nccl_call() -> None:
    build = LogBuilder()
    build.record(Kind.COLLECTIVE, work="collective kind=all_gather bytes=64 dtype=bf16 comm=1 peer=-1", object=1)
    trace = assemble(build.log(), default_manifest())
    assert trace.operators == ("nccl::all_gather",)
    assert trace.signatures == (Collective("all_gather", 64, "bfloat16", 0),)


def test_there_may_be_more_exchanges_than_texts_in_the_log() -> None:
    """Every exchange of sends and receives has its own negative id, even if they repeat the same calls."""
    build = LogBuilder()
    build.notes.append("communicator serial=1 size=4 rank=2 parent=-1")
    for launch in range(100):
        for peer in range(4):
            for kind in ("send", "recv"):
                call = f"collective kind={kind} bytes=100 dtype=bf16 comm=1 peer={peer}"
                build.record(Kind.COLLECTIVE, work=call, object=launch)
    trace = assemble(build.log(), default_manifest())
    assert trace.signatures == (Collective("all_to_all", 400, "bfloat16", 0),)
    assert trace.columns["signature"].tolist() == [0] * 100


def test_only_streams_in_use_have_priorities() -> None:
    build = LogBuilder()
    build.notes += [f"stream index={index} device=0 priority={-index} nonblocking=1" for index in range(4)]
    for stream in (0, 2):
        build.record(Kind.WORK, work=GEMM, stream=stream)
    assert assemble(build.log(), default_manifest()).manifest.stream_priorities == {2: -2}


def test_a_block_named_later_has_its_category_from_the_start() -> None:
    build = LogBuilder()
    build.record(Kind.ALLOC, object=512, value=1024)
    build.record(Kind.WORK, work=GEMM)
    build.record(Kind.RETAG, object=512, value=int(Category.GRADIENT))
    trace = assemble(build.log(), default_manifest())
    assert trace.columns["kind"].tolist() == [Kind.ALLOC, Kind.RETAG, Kind.WORK]
    assert trace.columns["value"].tolist() == [1024, Category.GRADIENT, 0]


def test_products_are_converted_to_row_major() -> None:
    """cuBLAS's column-major D[8, 4] is row-major D[4, 8]; it transposes the weight."""
    build = LogBuilder()
    build.record(Kind.WORK, work=GEMM)
    assert assemble(build.log(), default_manifest()).signatures == (
        Gemm(m=4, n=8, k=2, batch=1, dtype="bfloat16", layout="NT"),
    )
