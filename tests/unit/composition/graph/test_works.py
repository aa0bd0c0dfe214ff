"""Operators of several kernels have them all, as captures do."""

from __future__ import annotations

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
