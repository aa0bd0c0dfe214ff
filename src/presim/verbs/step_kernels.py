"""What the kernels of captured engine steps are for, and a rank's share of its experts' work."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.serving.model_lookup import Experts
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Attention, Collective, Elementwise, Fused, GroupedGemm, Signature

_ALL_REDUCE, _TRITON_ATTENTION = "_C_custom_ar::all_reduce", "unified_attention"  # vLLM's
_BESIDE_EXPERTS = ("moe", "experts")  # in names of vLLM's operators
_ROUTER = "topk"  # likewise; it chooses for the tokens of its own rank


def is_attention(signature: Signature | None) -> bool:
    """Whether it is attention; vLLM's Triton kernel for INT8 caches, whose loops depend on lengths, is, too."""
    return isinstance(signature, Attention) or (isinstance(signature, Fused) and _TRITON_ATTENTION in signature.name)


def is_all_reduce(signature: Signature | None) -> bool:
    """Whether it is an all-reduce; vLLM's own kernel is one, too, although its signature has no ranks."""
    is_custom_kernel = isinstance(signature, Elementwise) and signature.operator == _ALL_REDUCE
    return is_custom_kernel or (isinstance(signature, Collective) and signature.kind == "all_reduce")


def with_own_experts(trace: Trace, experts: Experts | None, ranks: int) -> Trace:
    """The trace with expert products reduced to one rank's share, if the ranks divide the experts among them.

    vLLM calls its kernel with all tokens; only the device knows which of their experts are on this rank. Tokens are
    assumed to choose experts evenly, so the rank gets an equal share of the choices and of the experts in use.
    """
    if experts is None:
        return trace
    return dataclasses.replace(
        trace, signatures=tuple(_rank_share(signature, experts, ranks) for signature in trace.signatures)
    )


def _rank_share(signature: Signature, experts: Experts, ranks: int) -> Signature:
    if not isinstance(signature, GroupedGemm):
        return signature
    tokens = signature.m / experts.chosen
    used = experts.count * (1 - (1 - experts.chosen / experts.count) ** tokens) / ranks
    rows = max(1, round(signature.m / ranks))
    return msgspec.structs.replace(signature, groups=max(1, round(min(used, rows))), m=rows)


def is_expert_work(trace: Trace) -> NDArray[np.bool_]:
    """Mask of the work that data-parallel ranks divide: each layer's two grouped products and what is between them.

    Operators of vLLM's expert layers count, too, and the all-reduce after the products, before the next attention.
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
        elif is_attention(signature):
            waits_for_sum = False
        elif waits_for_sum and is_all_reduce(signature):
            mask[entry], waits_for_sum = True, False
        elif _is_beside_experts(signature):
            mask[entry] = True
    return mask


def _is_beside_experts(signature: Signature) -> bool:
    name = str(getattr(signature, "operator", ""))
    return _ROUTER not in name and any(word in name for word in _BESIDE_EXPERTS)
