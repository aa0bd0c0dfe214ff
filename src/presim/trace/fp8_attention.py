"""A trace whose attention computes in FP8, from one where it computes in 16 bits."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np

from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Attention, Elementwise

_LAYOUTS = 2  # products along rows and along columns have a copy each: a block of MXFP8 lies along its product


def with_fp8_attention(trace: Trace) -> Trace:
    """The same work with attention's products in FP8, and a cast before each.

    Forward casts queries, keys and values, backward the gradient of the result; both are in two layouts. The host asks
    for a cast within the time that it took to ask for the attention.
    """
    numbers = [number for number, signature in enumerate(trace.signatures) if _in_16_bits(signature)]
    if not numbers:
        return trace
    signatures = list(trace.signatures)
    casts = np.full(len(signatures), -1)
    for number in numbers:
        attention = signatures[number]
        assert isinstance(attention, Attention)
        casts[number] = len(signatures)
        signatures.append(_cast(attention))
        signatures[number] = msgspec.structs.replace(attention, dtype="float8_e4m3fn")
    asked = trace.mask(Kind.WORK) & np.isin(trace.columns["signature"], numbers)
    places = np.flatnonzero(asked)
    columns = {name: np.insert(column, places, column[places]) for name, column in trace.columns.items()}
    before = places + np.arange(len(places))  # where the casts are now, each with its attention behind it
    columns["signature"][before] = casts[columns["signature"][before].astype(np.int64)]
    columns["host_ns"][before + 1] = 0
    return dataclasses.replace(trace, signatures=tuple(signatures), columns=columns)


def _in_16_bits(signature: object) -> bool:
    return isinstance(signature, Attention) and signature.dtype in ("bfloat16", "float16")


def _cast(attention: Attention) -> Elementwise:
    results = attention.batch * attention.heads * attention.q_len * attention.v_head_dim
    queries = attention.batch * attention.heads * attention.q_len * attention.head_dim
    keys_and_values = attention.batch * attention.kv_heads * attention.kv_len
    keys_and_values *= attention.head_dim + attention.v_head_dim
    elements, tensors = (queries + keys_and_values, 3) if attention.direction == "forward" else (results, 1)
    read = elements * dtype_bytes(attention.dtype)
    return Elementwise(read, _LAYOUTS * elements, elements, attention.dtype, tensors, "te::quantize")
