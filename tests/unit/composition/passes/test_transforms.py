"""Fusion, quantisation and passes of the user's own: what they conserve, and what is refused."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim import hardware
from presim.cli import main
from presim.composition.capture_comparison import work
from presim.composition.compose import compose
from presim.composition.graph import graph_files
from presim.composition.graph.graph_schema import OperatorGraph, ValueOrigin
from presim.composition.passes import fusion, registry
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.trace.job import Job
from presim.trace.schema import Trace
from presim.trace.signatures import Gemm
from presim.trace.trace_invariants import check
from support.long_cases import examples
from support.models import llama

pytestmark = pytest.mark.torch_cuda
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
FUSIONS = [name for name in registry.names() if name.startswith("fuse-")]
FP8 = ("fp8-tensor", "fp8-row", "fp8-block")
NARROW = (*FP8, "int8")
GUIDE = Path(__file__).parents[4] / "docs" / "extend" / "passes.md"


def trace(*passes: str, **fields: object) -> Trace:
    (one,) = compose(llama(), msgspec.convert({"sequence": 512, "passes": passes, **fields}, Plan), CLUSTER).traces
    check(one)
    return one


def totals(*passes: str) -> tuple[int, int, int]:
    """FLOPs, memory-bound bytes, kernels."""
    return registry._totals(registry.apply(llama(), passes, 1, 512)[0], 1, 512)


@given(st.lists(st.sampled_from(FUSIONS), unique=True))
@settings(max_examples=examples(8), deadline=None)
def test_fusions_conserve_flops_and_never_move_more(passes: list[str]) -> None:
    """In any order, each of them a second time changes nothing."""
    flops, moved, kernels = totals(*passes)
    plain = totals()
    assert flops == plain[0]
    assert moved <= plain[1]
    assert (kernels < plain[2]) == bool(passes)
    assert totals(*passes, *passes) == (flops, moved, kernels)


def test_fusions_of_different_modules_commute() -> None:
    assert totals("fuse-norm", "fuse-activation") == totals("fuse-activation", "fuse-norm")


@pytest.mark.parametrize("name", [*FUSIONS, *NARROW])
def test_a_pass_gives_a_valid_trace_with_the_same_communication(name: str) -> None:
    plain, changed = work(trace()), work(trace(name))

    def of(found: Counter[tuple[str, Hashable]], *kinds: str) -> Counter[tuple[str, Hashable]]:
        return Counter({key: times for key, times in found.items() if key[0] in kinds})

    same = ("collective", "attention", "product") if name in FUSIONS else ("collective", "attention")
    assert of(plain, *same) == of(changed, *same)


@pytest.mark.parametrize("name", NARROW)
def test_quantised_products_are_as_many_and_as_large(name: str) -> None:
    plain, changed = (
        Counter((one.m, one.n, one.k) for kind, one in work(trace(*passes)).elements() if isinstance(one, Gemm))
        for passes in ((), (name,))
    )
    assert plain == changed
    narrow = [
        one for kind, one in work(trace(name)) if isinstance(one, Gemm) and one.dtype in ("float8_e4m3fn", "int8")
    ]
    assert all(one.out_dtype == "bfloat16" and one.layout == "NT" for one in narrow)
    precise = name in ("fp8-tensor", "fp8-row")
    assert {one.sums for one in narrow} == ({"", "precise"} if precise else {""})


def test_a_gpu_without_the_type_is_refused() -> None:
    with pytest.raises(InputError, match=r"no matrix units for nvfp4; use fp8-tensor, fp8-row, fp8-block, int8, or"):
        compose(llama(), Plan(sequence=512, passes=("nvfp4",)), CLUSTER)
    assert compose(llama(), Plan(sequence=512, passes=("nvfp4",)), hardware.choose_cluster(gpu="b200", world_size=8))


def test_some_blocks_are_recomputed() -> None:
    none, two, four = (
        sum(work(trace(recompute=how, recompute_blocks=blocks)).values())
        for how, blocks in (("none", 0), ("full", 2), ("full", 0))
    )
    assert none < two < four
    assert four - two == two - none


@pytest.mark.parametrize("before", [(), ("fuse-norm", "fuse-activation")], ids=str)
def test_selective_recomputation_keeps_products_and_saves_memory(before: tuple[str, ...]) -> None:
    """No product or exchange runs again; the peak lies between those of all and of nothing recomputed."""
    plain, selective, full = trace(*before), trace(*before, "recompute-selective"), trace(*before, recompute="full")
    assert work(selective) == work(plain)
    assert len(selective) > len(plain)
    peaks = [evaluate(Job.of(one), CLUSTER).result.memory.peak_allocated_bytes for one in (full, selective, plain)]
    assert peaks[0] < peaks[1] < peaks[2]
    once = registry.apply(llama(), (*before, "recompute-selective"), 1, 512)[0]
    assert registry.apply(once, ("recompute-selective",), 1, 512)[0] == once


def test_cuda_graphs_take_no_host_time() -> None:
    assert int(trace(cuda_graphs=True).columns["host_ns"].sum()) < int(trace().columns["host_ns"].sum()) / 50


@pytest.mark.parametrize("name", [*FUSIONS, "recompute-selective", "fp8-row"])
def test_passes_follow_parallel_ones(name: str) -> None:
    """What a parallel pass leaves behind is not the doing of those after it."""
    assert len(trace(name, tensor=2, sequence_parallel=True)) > 0


def drops_a_parameter(graph: OperatorGraph) -> OperatorGraph:
    return msgspec.structs.replace(graph, parameters=graph.parameters[1:])


def forgets_a_producer(graph: OperatorGraph) -> OperatorGraph:
    segment = graph.segments[1]
    first = next(
        index
        for index, node in enumerate(segment.nodes)
        if not node.view and segment.values[node.outputs[0].value].origin is ValueOrigin.OWN
    )
    nodes = segment.nodes[:first] + segment.nodes[first + 1 :]
    changed = msgspec.structs.replace(segment, nodes=nodes)
    return msgspec.structs.replace(graph, segments=(graph.segments[0], changed, *graph.segments[2:]))


def returns_nothing(graph: OperatorGraph) -> None:
    return None


def raises(graph: OperatorGraph) -> OperatorGraph:
    raise KeyError("x")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("drops_a_parameter", r"changed the parameters from [\d,]+ to [\d,]+ bytes"),
        ("forgets_a_producer", r"broke the graph: aten::\w+ in the forward of model.layers.\* uses value \d+ before"),
        ("returns_nothing", "returned NoneType, not an OperatorGraph"),
        ("raises", "raised KeyError: 'x'"),
    ],
)
def test_a_pass_that_breaks_the_graph_is_named(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"the pass {__name__}:{name} {sentence}"):
        registry.apply(llama(), (f"{__name__}:{name}",), 1, 512)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no-pass", "no-pass is not a pass: use one of fuse-norm,"),
        ("no.module:f", "cannot be loaded: No module named 'no'"),
    ],
)
def test_a_pass_that_is_not_there_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        registry.find(name)


def test_the_guide_s_own_passes_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = re.findall(r"```python\n(\"\"\"Fuse kernels.*?)```", GUIDE.read_text(), re.DOTALL)[0]
    (tmp_path / "my_kernels.py").write_text(code)
    graph_files.save(llama(), tmp_path / "g")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    passes = ["--pass", "my_kernels:window_attention", "--pass", "my_kernels:norm_and_rotary"]
    assert main.run(["compose", "g", "--gpu", "h100-sxm", "--world-size", "8", "--seq", "2048", *passes]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"Pass my_kernels:window_attention, .*? FLOPs [\d.]+ to [\d.]+ TFLOP", said)
    assert re.search(r"Pass my_kernels:norm_and_rotary, .*? FLOPs unchanged", said)


def test_fusing_nothing_is_the_identity() -> None:
    assert fusion.fuse(llama(), "nothing", lambda node: False) == llama()
