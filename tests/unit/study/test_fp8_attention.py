"""Attention in FP8 where it was captured in 16 bits."""

from __future__ import annotations

import numpy as np

from presim.trace.fp8_attention import with_fp8_attention
from presim.trace.signatures import Attention, Elementwise
from support import workloads


def test_each_attention_computes_in_fp8_behind_a_cast_and_all_else_stays() -> None:
    trace = workloads.llama_8b(steps=1, layers=2)
    found = with_fp8_attention(trace)
    named = [found.signatures[number] if number >= 0 else None for number in found.columns["signature"]]
    places = [place for place, signature in enumerate(named) if isinstance(signature, Attention)]
    assert len(found) == len(trace) + len(places) > len(trace)
    for place in places:
        cast, attention = named[place - 1], named[place]
        assert isinstance(cast, Elementwise)
        assert isinstance(attention, Attention)
        assert attention.dtype == "float8_e4m3fn"
        assert cast.bytes_written == cast.bytes_read == 2 * cast.elements
        assert found.columns["stream"][place] == found.columns["stream"][place - 1]
    assert found.columns["host_ns"].sum() == trace.columns["host_ns"].sum()
    kept = np.delete(np.arange(len(found)), np.array(places) - 1)
    np.testing.assert_array_equal(found.columns["signature"][kept], trace.columns["signature"])


def test_a_trace_without_attention_is_the_same() -> None:
    found = with_fp8_attention(workloads.llama_8b(steps=1, layers=2))
    assert with_fp8_attention(found) is found
