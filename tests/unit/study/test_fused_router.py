"""Routers that choose experts by one kernel where they were captured operator by operator."""

from __future__ import annotations

from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind, Phase, Trace
from presim.trace.signatures import Elementwise, Gemm, Index, Random, Signature, Sort
from presim_study.fused_router import with_fused_routers
from support import workloads

_ROUTER, _EXPERTS = "layers.0.mlp.router", "layers.0.mlp.experts"
_LOGITS = 16 * 128


def _work(operator: str, dtype: str = "bfloat16") -> Elementwise:
    return Elementwise(32, 32, 16, dtype, 1, operator)


_GATE = Gemm(16, 128, 64, 1, "bfloat16")
_DRAWN = Random(0, 2 * _LOGITS, _LOGITS, "bfloat16", 1, "aten::normal_")
_FORWARD: list[Signature] = [
    *(_GATE, _DRAWN, Sort(64, 64, 16, "bfloat16", 1, "aten::topk"), _work("aten::copy_"), _work("aten::fill_")),
    *(Index(64, 64, 16, "int32", 1, "aten::scatter"), _work("aten::copy_", "bool"), _work("aten::add_")),
]
_BACKWARD: list[Signature] = [
    *(Index(64, 64, 16, "bfloat16", 1, "aten::gather"), _work("aten::mul"), _work("aten::sum")),
    *(_work("aten::copy_"), _GATE, _GATE),
]
_UNNAMED = 2  # of those: a sum that autograd adds names no module


def _routed() -> Trace:
    build = TraceBuilder()
    for signature in _FORWARD:
        build.work(signature, host_ns=1000, scope=_ROUTER, phase=Phase.FORWARD)
    build.work(_work("aten::gather"), host_ns=1000, scope=_EXPERTS, phase=Phase.FORWARD)
    for place, signature in enumerate(_BACKWARD):
        scope = "" if place == _UNNAMED else _ROUTER
        build.work(signature, host_ns=1000, scope=scope, phase=Phase.BACKWARD)
    return build.trace()


def test_one_kernel_each_way_stands_for_what_chooses() -> None:
    trace = _routed()
    found = with_fused_routers(trace)
    operators = [getattr(found.signatures[number], "operator", "product") for number in found.columns["signature"]]
    assert operators == [
        *("product", "aten::normal_", "te::fused_topk_with_score_function_fwd", "aten::add_"),
        "aten::gather",
        *("te::fused_topk_with_score_function_bwd", "product", "product"),
    ]
    assert set(found.columns["host_ns"].tolist()) == {1000}
    forward = found.signatures[found.columns["signature"][2]]
    backward = found.signatures[found.columns["signature"][5]]
    assert isinstance(forward, Elementwise)
    assert isinstance(backward, Elementwise)
    assert forward.bytes_read == backward.bytes_written == 2 * _LOGITS
    assert forward.bytes_written == backward.bytes_read == 7 * _LOGITS


def test_blocks_that_the_operators_took_are_kept_and_cost_no_time() -> None:
    build = TraceBuilder()
    build.work(_DRAWN, host_ns=1000, scope=_ROUTER, phase=Phase.FORWARD)
    build.work(_FORWARD[2], host_ns=1000, scope=_ROUTER, phase=Phase.FORWARD)
    build.alloc(512, 512, host_ns=1000, scope=_ROUTER, phase=Phase.FORWARD)
    build.work(_work("aten::copy_", "bool"), host_ns=1000, scope=_ROUTER, phase=Phase.FORWARD)
    found = with_fused_routers(build.trace())
    assert [Kind(kind) for kind in found.columns["kind"]] == [Kind.WORK, Kind.WORK, Kind.ALLOC]
    assert found.columns["host_ns"].tolist() == [1000, 1000, 0]


def test_a_trace_without_routers_is_the_same() -> None:
    trace = workloads.llama_8b(steps=1, layers=1)
    assert with_fused_routers(trace) is trace
