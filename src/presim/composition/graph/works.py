"""Device work of graph operators: the kernels that PyTorch's CUDA build launches, as signatures.

Most operators are one kernel. Those that are several, or are known under another name when captured, are listed here;
`validation/composed.py` compares the outcome with captured runs, signature by signature.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal, cast

from presim.capture.reading.classify import memory_family
from presim.capture.reading.launch_operators import LaunchingOperator
from presim.capture.reading.launch_operators import Operand as Seen
from presim.capture.reading.pointwise_kernels import operands_by_layout
from presim.capture.reading.traffic import traffic
from presim.composition.graph.graph_schema import Node, OperatorGraph
from presim.composition.graph.graph_schema import Operand as Named
from presim.composition.graph.sizes import read
from presim.errors import InputError
from presim.trace.signatures import (
    Attention,
    Copy,
    Elementwise,
    Fused,
    Gemm,
    GroupedGemm,
    Normalization,
    Signature,
    Softmax,
)

Work = tuple[str, Signature]  # (operator, signature)


class Sizes:
    """A graph's shapes in numbers, for one batch and sequence length."""

    def __init__(self, graph: OperatorGraph, batch: int, sequence: int) -> None:
        self.shapes = [tuple(read(size)(batch, sequence) for size in shape) for shape in graph.shapes]
        self._elements = [math.prod(shape) for shape in self.shapes]

    def elements(self, operand: Named) -> int:
        """Numbers in a tensor."""
        return self._elements[operand.shape]

    def seen(self, operand: Named) -> Seen:
        """An operand with its numeric shape, as a capture records it."""
        shape, stride = self.shapes[operand.shape], self.shapes[operand.stride]
        repeated = math.prod(size for size, step in zip(shape, stride) if not step and size > 1)
        return Seen(operand.dtype, self._elements[operand.shape], True, shape, repeated=repeated, strides=stride)


def works(node: Node, sizes: Sizes) -> list[Work]:
    """The kernels of one operator; none for a view.

    Raises:
        InputError: its tensors have too few dimensions, or an attribute is missing, as in a damaged graph.
    """
    try:
        return _works(node, sizes)
    except (IndexError, KeyError) as error:
        shapes = ", ".join(str(sizes.shapes[operand.shape]) for operand in node.inputs)
        raise InputError(
            f"{node.operator} in {node.scope or 'the model'} has inputs {shapes}, which it cannot have: "
            "make the graph again with `presim graph`"
        ) from error


def _works(node: Node, sizes: Sizes) -> list[Work]:
    if node.view or node.operator.startswith("comm::"):
        return []
    inputs = [sizes.seen(operand) for operand in node.inputs]
    outputs = [sizes.seen(operand) for operand in node.outputs]
    make = _MADE.get(node.operator)
    if node.operator.startswith("triton::"):
        return [_launched(node, inputs)]
    if node.operator.startswith(("fused::", "quantise::", "ring::", "sparse::")):
        return [moving(node.operator, inputs, outputs)]
    if make is not None:
        return make(node, inputs, outputs)
    if node.operator in _NOTHING or not (inputs or outputs):
        return []
    if node.written:
        outputs = [inputs[position] for position in node.written]
    return [bound(node.operator, inputs, outputs)]


def bound(name: str, inputs: Sequence[Seen], outputs: Sequence[Seen]) -> Work:
    """Work that is bound by the memory it moves."""
    operator = LaunchingOperator(name, tuple(inputs), tuple(outputs))
    family = memory_family(operator.base_name)
    read_bytes, written = traffic(operator, family)
    largest = max(operator.inputs + operator.outputs, key=lambda operand: operand.elements)
    special: dict[str, int] = {"row": operator.row} if family in (Normalization, Softmax) else {}
    if family is Elementwise:
        special = operands_by_layout(operator)
    return name, family(
        bytes_read=read_bytes,
        bytes_written=written,
        elements=largest.elements,
        dtype=largest.dtype,
        fused_tensors=largest.tensors,
        operator=name,
        **special,
    )


def moving(name: str, inputs: Sequence[Seen], outputs: Sequence[Seen]) -> Work:
    """A kernel that reads and writes each of its tensors once."""
    largest = max((*inputs, *outputs), key=lambda operand: operand.elements)
    return name, Elementwise(
        bytes_read=sum(operand.bytes for operand in inputs),
        bytes_written=sum(operand.bytes for operand in outputs),
        elements=largest.elements,
        dtype=largest.dtype,
        operator=name,
    )


def _launched(node: Node, inputs: list[Seen]) -> Work:
    """A kernel that a library launches itself; it reads and writes each of its tensors once."""
    reads = [operand for position, operand in enumerate(inputs) if position not in node.written]
    writes = [inputs[position] for position in node.written]
    largest = max(inputs, key=lambda operand: operand.elements)
    flops = int(str(node.attributes.get("flops", 0))) * reads[0].elements
    signature = Fused(
        name=node.operator.removeprefix("triton::"),
        bytes_read=sum(operand.bytes for operand in reads),
        bytes_written=sum(operand.bytes for operand in writes),
        elements=largest.elements,
        dtype=largest.dtype,
        special=int(str(node.attributes.get("exponentials", 0))) * reads[0].elements,
        products=((reads[0].dtype, flops),) if flops else (),
    )
    return node.operator, signature


def _product(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    a, b = inputs[1:3] if len(inputs) > 2 else inputs  # a fourth is where the result goes
    out = outputs[0]
    batch = a.shape[0] if len(a.shape) == 3 else 1
    layout = str(node.attributes.get("layout", "NN"))
    bias = len(inputs) > 2
    gemm = Gemm(
        m=a.shape[-2],
        n=b.shape[-1],
        k=a.shape[-1],
        batch=batch,
        dtype=a.dtype,
        compute="int32" if a.dtype == "int8" else "float32",
        b_dtype=b.dtype if b.dtype == "uint4" else "",
        out_dtype="" if out.dtype == a.dtype else out.dtype,
        layout=layout,
        epilogue="bias" if bias and len(inputs[0].shape) == 1 else "",
        accumulate=bias and len(inputs[0].shape) > 1,
        scaling=str(node.attributes.get("scaling", "")),
        sums=str(node.attributes.get("sums", "")),
        sparsity=str(node.attributes.get("sparsity", "")),
    )
    return [(node.operator, gemm)]


def _scaled(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    """An 8-bit product with scale factors; captured cuBLASLt calls with precise sums have none."""
    a, b, scale = inputs[:3]
    is_fast = bool(node.attributes.get("use_fast_accum"))
    gemm = Gemm(
        m=a.shape[-2],
        n=b.shape[-1],
        k=a.shape[-1],
        batch=1,
        dtype=a.dtype,
        compute="float32",
        out_dtype=outputs[0].dtype,
        layout=str(node.attributes.get("layout", "NT")),
        scaling="outer" if is_fast and scale.elements > 1 else "",
        sums="" if is_fast else "precise",
    )
    return [(node.operator, gemm)]


def _attention(direction: str, usual: str = "cudnn") -> Callable[[Node, list[Seen], list[Seen]], list[Work]]:
    def make(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
        query, key, value = inputs[1:4] if direction == "backward" else inputs[:3]
        backend = str(node.attributes.get("backend", usual))
        signature = Attention(
            direction=direction,  # type: ignore[arg-type]
            batch=query.shape[0],
            heads=query.shape[1],
            kv_heads=key.shape[1],
            q_len=query.shape[2],
            kv_len=key.shape[2] // int(str(node.attributes.get("keys_per_attended", 1))),
            head_dim=query.shape[3],
            v_head_dim=value.shape[3],
            causal=bool(node.attributes.get("is_causal", 0)),
            dtype=query.dtype,
            backend=backend,
            window=int(str(node.attributes.get("window", 0))),
        )
        name = f"aten::_{backend}_attention_{direction}"
        if (backend, direction) != ("flash", "backward"):
            return [(name, signature)]
        # row sums of the gradient before the kernel, the query's cast after it
        helper_kernel = _flash_backward_helper(name, inputs, outputs)
        return [(name, helper_kernel), (name, signature), (name, helper_kernel)]

    return make


def _flash_backward_helper(name: str, inputs: list[Seen], outputs: list[Seen]) -> Elementwise:
    """One of the small kernels of flash attention's backward pass; captures divide its tensors among three kernels."""
    query = inputs[1]
    return Elementwise(
        bytes_read=sum(operand.bytes for operand in inputs[:6]) // 3,
        bytes_written=sum(operand.bytes for operand in outputs) // 3,
        elements=query.elements // 3,
        dtype=query.dtype,
        operator=name,
    )


def _row_sum(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    """A sum over rows by several thread blocks; their counters, one per 128 columns, are zeroed first."""
    work = bound(node.operator, inputs, outputs)
    rows, columns = inputs[0].elements // max(1, outputs[0].elements), outputs[0].elements
    is_over_rows = node.attributes.get("dim") == [0] and len(inputs[0].shape) == 2 and rows >= _SHARED_ROWS
    return [(node.operator, Copy("memset", 4 * -(-columns // 128))), work] if is_over_rows else [work]


def _cast(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    """A kernel if the type or layout changes; otherwise a memory copy."""
    if node.attributes.get("plain"):
        return [("aten::copy_", Copy("d2d", outputs[0].bytes))]
    return [bound("aten::copy_", [outputs[0], inputs[-1]], [outputs[0]])]


def _copied(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    if node.attributes.get("plain"):
        return [("aten::copy_", Copy("d2d", inputs[0].bytes))]
    return [bound("aten::copy_", inputs, [inputs[0]])]


def _filled(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    return [bound("aten::fill_", outputs, outputs)]


def _put_into_zeros(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    """The gradient of a slice: a tensor of zeros into which the slice is copied."""
    part = inputs[0]
    target = dataclasses.replace(part, strides=outputs[0].strides)
    return [bound("aten::fill_", outputs, outputs), bound("aten::copy_", [target, part], [target])]


def _picked(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    return [bound("aten::fill_", outputs, outputs), bound(node.operator, inputs, outputs)]


def _joined(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    elements = sum(operand.elements for operand in inputs)
    all_inputs = Seen(inputs[0].dtype, elements, True, (), tensors=len(inputs))
    return [bound("aten::cat", [all_inputs], outputs)]


def _power(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    if node.attributes.get("exponent") == 1:
        return [("aten::copy_", Copy("d2d", outputs[0].bytes))]
    return [bound(node.operator, inputs, outputs)]


def _norm_backward(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    """One kernel for the input's gradient, one for the weight's, which sums over rows."""
    first = bound(node.operator, inputs, outputs)
    return [first, bound(node.operator, inputs, outputs[1:])] if len(outputs) > 1 else [first]


def _rows(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    return [bound("aten::gather", inputs, outputs)]


def _grouped(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    a, b = inputs[:2]
    groups = b.shape[0] if len(b.shape) == 3 else outputs[0].shape[0]
    if len(b.shape) == 3:
        m, n, k = a.shape[0], b.shape[-1], a.shape[-1]
    else:  # the weights' gradient: tokens are summed over
        m, n, k = a.shape[0] * groups, b.shape[-1], max(1, a.shape[-1] // groups)
    sizes = tuple(cast("list[int]", node.attributes.get("sizes", ())))
    along: Literal["m", "k"] = "k" if sizes and len(b.shape) == 2 else "m"
    return [(node.operator, GroupedGemm(groups, m, n, k, a.dtype, sizes=sizes, along=along))]


def _read_back(node: Node, inputs: list[Seen], outputs: list[Seen]) -> list[Work]:
    return [(node.operator, Copy("d2h", inputs[0].bytes, pinned=True))]


_SHARED_ROWS = 1024  # fewer are summed by one thread block
_NOTHING = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::detach", "aten::set_")
_MADE: dict[str, Callable[[Node, list[Seen], list[Seen]], list[Work]]] = {
    "aten::mm": _product,
    "aten::bmm": _product,
    "aten::addmm": _product,
    "aten::baddbmm": _product,
    "aten::_scaled_mm": _scaled,
    "aten::_grouped_mm": _grouped,
    "aten::_scaled_dot_product_cudnn_attention": _attention("forward"),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention("backward"),
    "aten::_scaled_dot_product_efficient_attention": _attention("forward", "efficient"),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention("backward", "efficient"),
    "aten::_to_copy": _cast,
    "aten::clone": _cast,
    "aten::copy_": _copied,
    "aten::ones_like": _filled,
    "aten::zeros_like": _filled,
    "aten::zeros": _filled,
    "aten::ones": _filled,
    "aten::full": _filled,
    "aten::full_like": _filled,
    "aten::new_zeros": _filled,
    "aten::slice_backward": _put_into_zeros,
    "aten::select_backward": _put_into_zeros,
    "aten::constant_pad_nd": _put_into_zeros,
    "aten::nll_loss_backward": _picked,
    "aten::_fused_rms_norm_backward": _norm_backward,
    "aten::native_layer_norm_backward": _norm_backward,
    "aten::sum": _row_sum,
    "aten::cat": _joined,
    "aten::stack": _joined,
    "aten::pow": _power,
    "aten::embedding": _rows,
    "aten::_local_scalar_dense": _read_back,
    "experts::splits": _read_back,  # the host does not wait
}
COUNTED = frozenset(name for name in _MADE if "mm" in name or "dot_product" in name)  # products and attention
READS_BACK = ("aten::_local_scalar_dense",)  # after which the host waits for the stream
