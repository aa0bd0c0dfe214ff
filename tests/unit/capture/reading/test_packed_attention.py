"""Attention over packed sequences, of lengths that only the device knows."""

from __future__ import annotations

import msgspec
import pytest

from presim.capture.reading.launch_operators import LaunchingOperator, parse_operator
from presim.capture.reading.log import parse
from presim.capture.reading.packed_attention import is_packed, notes, packed_tokens
from presim.trace.signatures import Attention

TENSORS = "BFloat16[8192;32;128],BFloat16[8192;8;128],BFloat16[8192;8;128]"


def operator(name: str, inputs: str, numbers: str = "") -> LaunchingOperator:
    launching = parse_operator(parse(f"op name={name} in={inputs} out= args={numbers}"))
    assert launching is not None
    return launching


@pytest.mark.parametrize(
    ("name", "inputs", "numbers", "expected"),
    [
        ("aten::_flash_attention_forward", f"{TENSORS},Int[4],Int[4]", "", True),
        ("flash_attn::_flash_attn_varlen_forward", f"{TENSORS},Int[4],Int[4]", "", True),
        ("te::fused_attn_fwd", "int32[4],int32[4]", "0,8192,8192", True),
        ("te::fused_attn_fwd", "int32[4],int32[4]", "129", False),  # padded: its tensors have four dimensions
        ("aten::_flash_attention_forward", f"{TENSORS},Int[2],Int[2]", "", False),  # one sequence: its length is known
        ("_vllm_fa2_C::varlen_fwd", f"{TENSORS},Int[4],Int[4]", "", False),
    ],
)
def test_several_sequences_in_tensors_of_tokens_are_packed(
    name: str, inputs: str, numbers: str, expected: bool
) -> None:
    assert is_packed(operator(name, inputs, numbers)) == expected


def test_transformer_engine_s_tokens_follow_the_window() -> None:
    assert packed_tokens(operator("te::fused_attn_bwd", "int32[4]", "129,8192,4096")) == (8192, 4096)
    assert packed_tokens(operator("te::fused_attn_bwd", "int32[4]", "129")) is None


def test_the_assumption_is_said_once_with_the_largest_sizes() -> None:
    small = Attention("forward", 4, 32, 8, 512, 512, 128, 128, True, "bfloat16", "flash")
    (sentence,) = notes([small, msgspec.structs.replace(small, batch=16)])
    assert "16 of 512 tokens" in sentence
    assert "up to 16 times" in sentence
    assert notes([]) == ()
