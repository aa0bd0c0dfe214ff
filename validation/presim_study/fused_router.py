"""A trace whose routers choose experts by one kernel each way, from one where each operator of theirs was launched."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Kind, Phase, Trace
from presim.trace.signatures import Elementwise, Gemm, Random, Signature

_ROUTER = re.compile(r"(^|\.)(router|TopKRouter)$")  # the module, or its class where layers run beside each other
_KEPT_FOR_BACKWARD = 5  # bytes of each choice: float32, and whether it was made


def with_fused_routers(trace: Trace) -> Trace:
    """The same work with Transformer Engine's fused choice of experts (``moe_router_fusion``).

    Recipes cannot run it: what its kernel writes is not computed, and the program goes on by it. Megatron draws random
    logits to spread tokens evenly; what follows them, up to the map of chosen experts, is one kernel, and so is what
    comes before the products in the backward pass. The host asks for each within the time that it took to come to
    the first of the operators. The kernel is priced by the bytes that it moves. The same trace where no router is.
    """
    stretches = list(_stretches(trace))
    if not stretches:
        return trace
    columns = {name: column.copy() for name, column in trace.columns.items()}
    own = _in_routers(trace) | (columns["scope"].astype(np.int64) < 0)  # some of what is differentiated names no module
    gone = np.zeros(len(trace), bool)
    numbers: dict[Signature, int] = {}
    for first, last, logits in stretches:
        kernel = _kernel(logits, columns["phase"][first] == Phase.BACKWARD)
        columns["signature"][first] = numbers.setdefault(kernel, len(trace.signatures) + len(numbers))
        within = np.arange(first + 1, last + 1)
        within = within[own[within]]
        columns["host_ns"][within] = 0
        gone[within] = trace.mask(Kind.WORK)[within]
    columns = {name: column[~gone] for name, column in columns.items()}
    return dataclasses.replace(trace, signatures=(*trace.signatures, *numbers), columns=columns)


def _in_routers(trace: Trace) -> NDArray[np.bool_]:
    named = np.array([bool(_ROUTER.search(scope)) for scope in trace.scopes] + [False])
    return named[trace.columns["scope"].astype(np.int64)]


def _stretches(trace: Trace) -> Iterator[tuple[int, int, Random]]:
    """First and last launch of each choice forward and backward, with the logits that were drawn before."""
    logits: Random | None = None
    asked: list[int] | None = None  # launches of the choice that is being made
    for place in np.flatnonzero(trace.mask(Kind.WORK) & _in_routers(trace)).tolist():
        signature = trace.signatures[trace.columns["signature"][place]]
        backward = trace.columns["phase"][place] == Phase.BACKWARD
        if isinstance(signature, Random):
            logits, asked = signature, []
            continue
        if logits is None:
            continue
        if asked is None and backward and getattr(signature, "operator", "") == "aten::gather":
            asked = []
        if asked is None:
            continue
        if not (backward and isinstance(signature, Gemm)):
            asked.append(place)
            if not (isinstance(signature, Elementwise) and signature.dtype == "bool"):
                continue
        yield asked[0], asked[-1], logits
        asked = None


def _kernel(logits: Random, backward: bool) -> Elementwise:
    chosen = logits.elements * dtype_bytes(logits.dtype)
    kept = logits.elements * _KEPT_FOR_BACKWARD
    read, written = (chosen + kept, chosen) if backward else (chosen, chosen + kept)
    name = f"te::fused_topk_with_score_function_{'bwd' if backward else 'fwd'}"
    return Elementwise(read, written, logits.elements, logits.dtype, 1, name)
