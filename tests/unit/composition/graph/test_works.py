"""Operators of several kernels have them all, as captures do."""

from __future__ import annotations

import pytest

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph
from presim.composition.graph.works import Sizes, works
from presim.trace.signatures import Attention, Copy, Elementwise, Normalization, Reduction

SHAPES = ((4096, 1600), (1600,), (1600, 1), (1,), (4, 25, 1024, 64), (1638400, 65536, 64, 1), (4, 25, 1024), (2,))
GRAPH = OperatorGraph(model="m", root="M", segments=(), shapes=SHAPES, parameters=())
SIZES = Sizes(GRAPH, 1, 1)


def operand(shape: int, stride: int, dtype: str = "bfloat16") -> Operand:
    return Operand(0, shape, dtype, stride)


def test_a_sum_over_rows_zeroes_the_counters_of_its_thread_blocks() -> None:
    """13 blocks of 128 columns for 1600 of them, as in a capture of GPT-2's gradients of biases."""
    node = Node("aten::sum", "", (operand(0, 2),), (operand(1, 3),), attributes={"dim": [0]})
    zeroed, summed = (signature for _, signature in works(node, SIZES))
    assert zeroed == Copy("memset", 52)
    assert isinstance(summed, Reduction)
    along = Node("aten::sum", "", (operand(0, 2),), (operand(2, 2),), attributes={"dim": [1]})
    assert len(works(along, SIZES)) == 1


def test_a_layer_norm_sums_gradients_of_its_weights_in_a_second_kernel() -> None:
    outputs = (operand(0, 2), operand(1, 3), operand(1, 3))
    node = Node("aten::native_layer_norm_backward", "", (operand(0, 2), operand(0, 2)), outputs)
    first, second = (signature for _, signature in works(node, SIZES))
    assert isinstance(first, Normalization)
    assert isinstance(second, Normalization)
    assert first.bytes_written - second.bytes_written == 4096 * 1600 * 2
    assert second.bytes_written == 2 * 1600 * 2


def test_flash_attention_s_backward_pass_has_two_small_kernels_beside() -> None:
    tensors = tuple(operand(4, 5) for _ in range(5))
    node = Node(
        "aten::_scaled_dot_product_cudnn_attention_backward",
        "",
        (*tensors, operand(6, 6, "float32")),
        tensors[:3],
        attributes={"backend": "flash", "is_causal": 1},
    )
    before, attention, after = (signature for _, signature in works(node, SIZES))
    assert isinstance(attention, Attention)
    assert isinstance(before, Elementwise)
    assert before == after
    assert before.bytes_written == 4 * 25 * 1024 * 64 * 2  # a third of three gradients


LAYOUTS = ((8, 64, 32), (2048, 32, 1), (8, 64, 1), (64, 1, 1), (2048, 1, 64), (6144, 96, 1))
LAID_OUT = Sizes(OperatorGraph(model="m", root="M", segments=(), shapes=LAYOUTS, parameters=()), 1, 1)
DENSE, COLUMN, TRANSPOSED, SLICED = (0, 1), (2, 3), (0, 4), (0, 5)


@pytest.mark.parametrize(
    ("first", "second", "dtype", "strided", "cast"),
    [
        (DENSE, DENSE, "bfloat16", 0, 0),
        (TRANSPOSED, TRANSPOSED, "bfloat16", 3, 0),  # the result is not transposed
        (DENSE, COLUMN, "bfloat16", 3, 0),  # a factor for each row
        (DENSE, SLICED, "bfloat16", 3, 0),  # a third of the columns of a projection
        (DENSE, DENSE, "float32", 0, 3),  # types are promoted within the kernel
        (DENSE, COLUMN, "float32", 3, 0),
    ],
)
def test_layouts_and_types_tell_the_kernel_of_elementwise_work(
    first: tuple[int, int], second: tuple[int, int], dtype: str, strided: int, cast: int
) -> None:
    result = "float32" if dtype == "float32" else "bfloat16"
    node = Node("aten::mul", "", (operand(*first), operand(*second, dtype)), (operand(*DENSE, result),))
    ((_, signature),) = works(node, LAID_OUT)
    assert isinstance(signature, Elementwise)
    assert (signature.strided_operands, signature.cast_operands) == (strided, cast)


def test_equal_dense_layouts_are_one_row_of_elements_whatever_their_order() -> None:
    node = Node("aten::mul", "", (operand(*TRANSPOSED), operand(*TRANSPOSED)), (operand(*TRANSPOSED),))
    ((_, signature),) = works(node, LAID_OUT)
    assert isinstance(signature, Elementwise)
    assert not signature.strided_operands


def test_pooling_is_no_expansion() -> None:
    node = Node("aten::max_pool2d_with_indices", "", (operand(0, 1),), (operand(2, 3),))
    ((_, signature),) = works(node, LAID_OUT)
    assert isinstance(signature, Elementwise)
    assert not signature.strided_operands


def test_a_copy_casts_except_to_fewer_bits() -> None:
    """Captures launch `unrolled_elementwise_kernel` for bfloat16 to float32, a vectorised kernel for the reverse."""
    casts = (
        ("bfloat16", "float32", 2),
        ("float32", "bfloat16", 0),
        ("bfloat16", "float8_e4m3fn", 0),
        ("bool", "int64", 2),
    )
    for source, target, cast in casts:
        node = Node("aten::_to_copy", "", (operand(*DENSE, source),), (operand(*DENSE, target),))
        ((_, signature),) = works(node, LAID_OUT)
        assert isinstance(signature, Elementwise)
        assert (signature.strided_operands, signature.cast_operands) == (0, cast)
