"""Parsing operators and their tensors from the hook's text."""

from __future__ import annotations

import pytest

from presim.capture.reading.launch_operators import Operand, parse_operands, parse_operator
from presim.capture.reading.log import parse


def test_tensors_scalars_and_lists_are_distinguished() -> None:
    """A shape, a tensor without dimensions on the CPU, a list with its count and elements."""
    assert parse_operands("BFloat16[4;8],cpu:Float[],Float{291;8030261248}") == (
        Operand("bfloat16", 32, True, (4, 8)),
        Operand("float32", 1, False, ()),
        Operand("float32", 8030261248, True, (), tensors=291),
    )


def test_an_empty_text_has_no_operands() -> None:
    assert parse_operands("") == ()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("Float[3]", 12),
        ("Half[3;2]", 12),
        ("Long[0;5]", 0),
        ("Bool[7]", 7),
        ("Float8_e4m3fn[16]", 16),
        ("Double{2;3}", 24),
    ],
)
def test_bytes_follow_from_type_and_elements(text: str, size: int) -> None:
    assert parse_operands(text)[0].bytes == size


def test_an_operator_has_name_inputs_outputs_and_scalars() -> None:
    operator = parse_operator(parse("op name=aten::mm in=Float[2;3],Float[3;4] out=Float[2;4] args=1,0,-1"))
    assert operator.name == "aten::mm"
    assert [operand.shape for operand in operator.inputs + operator.outputs] == [(2, 3), (3, 4), (2, 4)]
    assert operator.scalars == (1, 0, -1)


@pytest.mark.parametrize(
    ("name", "base", "in_place"),
    [
        ("aten::add", "add", False),
        ("aten::add_", "add", True),
        ("aten::mm_out", "mm", False),
        ("aten::_foreach_mul_", "_foreach_mul", True),
        ("mylib::scale.default", "scale", False),
        ("plain", "plain", False),
    ],
)
def test_the_base_name_drops_namespace_and_variant(name: str, base: str, in_place: bool) -> None:
    operator = parse_operator(parse(f"op name={name} in= out= args="))
    assert (operator.base_name, operator.in_place) == (base, in_place)


def test_an_expanded_tensor_moves_only_its_stored_elements() -> None:
    """Heads expanded four times: 64 elements, 16 of them stored."""
    (operand,) = parse_operands("Half[8;-4;2]")
    assert (operand.shape, operand.elements, operand.bytes) == ((8, 4, 2), 64, 32)


def test_an_output_argument_is_not_an_input() -> None:
    """It is described again after resizing; a list without a returned tensor keeps its description."""
    returned = parse_operator(parse("op name=aten::arange in=Long[0] out=Long[8] args= writes=argument"))
    assert (returned.inputs, returned.outputs) == ((), (Operand("int64", 8, True, (8,)),))
    both = "op name=_C::scaled_fp4_quant.out in=Half[8],Byte[4],Int[1] out= args= writes=argument,1,2"
    assert [one.dtype for one in parse_operator(parse(both)).outputs] == ["uint8", "int32"]  # places say more
    listed = parse_operator(parse("op name=aten::split in=Half[8],Half{2;8} out= args= writes=argument"))
    assert (len(listed.inputs), listed.outputs) == (1, (Operand("float16", 8, True, tensors=2),))
