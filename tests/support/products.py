"""Steps of products by one of PyTorch's operators, on a machine that is slower than it would be alone."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import msgspec

from presim.trace.builder import TraceBuilder
from presim.trace.capture_speed import reference_ns
from presim.trace.schema import Kind, Phase, Trace
from presim.trace.signatures import Gemm

KNOWN = min(name for name in reference_ns() if re.fullmatch(r"ALLOC aten::\w+ FORWARD", name))  # within an operator
OPERATOR = KNOWN.split(" ")[1]
PYTHON_NS = 20_000
_PRODUCT = Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16")


def products(
    slowdown: Sequence[float],
    *,
    steps: int = 3,
    operator: str = OPERATOR,
    reference_host: bool = True,
    python_ns: int = PYTHON_NS,
) -> Trace:
    """In each step a product for each slowdown, with Python before it."""
    build = TraceBuilder()
    within_ns = reference_ns()[KNOWN]
    for _ in range(steps):
        for factor in slowdown:
            build.alloc(0, 512, host_ns=round(python_ns * factor))
            build.work(_PRODUCT, host_ns=round(within_ns * factor), operator=operator, phase=Phase.FORWARD)
            build.free(0, 512)
        build.step()
    trace = build.trace()
    operators = trace.columns["operator"].copy()
    operators[trace.mask(Kind.ALLOC)] = 0  # the range that allocates is the operator's
    manifest = msgspec.structs.replace(trace.manifest, reference_host=reference_host)
    return dataclasses.replace(trace, manifest=manifest, columns={**trace.columns, "operator": operators})
