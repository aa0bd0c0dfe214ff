"""Routed experts in captured engine steps: which kernels are theirs, and a rank's share of their work."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.serving.model import Experts
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Attention, Collective, GroupedGemm, Signature

_BESIDE, _ROUTER = (
    ("moe", "experts"),
    "topk",
)  # in names of vLLM's operators around the products, and of those that choose


def of_own_experts(trace: Trace, experts: Experts | None, ranks: int) -> Trace:
    """A trace whose products of experts are those of one of the ranks that share whole experts.

    vLLM calls its kernel with all tokens; which of their experts are the rank's own is known on the device only. Tokens
    are taken to choose experts evenly, so the rank gets its share of the choices and of the experts in use.
    """
    if experts is None:
        return trace
    return dataclasses.replace(trace, signatures=tuple(_own(one, experts, ranks) for one in trace.signatures))


def _own(signature: Signature, experts: Experts, ranks: int) -> Signature:
    if not isinstance(signature, GroupedGemm):
        return signature
    tokens = signature.m / experts.chosen
    used = experts.count * (1 - (1 - experts.chosen / experts.count) ** tokens) / ranks
    rows = max(1, round(signature.m / ranks))
    return msgspec.structs.replace(signature, groups=max(1, round(min(used, rows))), m=rows)


def of_experts(trace: Trace) -> NDArray[np.bool_]:
    """Entries that data-parallel ranks share: each layer's two grouped products, what is between and beside them.

    The collective behind them, before the next attention, goes with them: among more ranks it is another one.
    """
    mask = np.zeros(len(trace.column("kind")), np.bool_)
    first = -1
    waits_for_sum = False
    for entry in np.flatnonzero(trace.mask(Kind.WORK, Kind.COLLECTIVE)):
        signature = trace.signatures[trace.column("signature")[entry]]
        is_product = isinstance(signature, GroupedGemm)
        if is_product and first >= 0:
            mask[first : entry + 1] = True
            first, waits_for_sum = -1, True
        elif is_product:
            first = int(entry)
        elif isinstance(signature, Attention):
            waits_for_sum = False
        elif waits_for_sum and isinstance(signature, Collective):
            mask[entry], waits_for_sum = True, False
        elif _ROUTER not in (name := str(getattr(signature, "operator", ""))) and any(word in name for word in _BESIDE):
            mask[entry] = True
    return mask
