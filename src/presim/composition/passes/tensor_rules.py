"""Propagation rules of tensor parallelism: from the model's split matrices to all tensors."""

from __future__ import annotations

from collections.abc import Sequence

from presim.composition.graph.graph_schema import Node
from presim.composition.passes.tensor_parts import PRODUCTS, Part, Tensors
from presim.errors import InputError

_ATTENTION = ("aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention_backward")
_REDUCTIONS = ("aten::sum", "aten::mean", "aten::amax", "aten::linalg_vector_norm")
_LOOKED_UP = ("aten::max", "aten::sum", "aten::index", "aten::index_put_")  # lookups in a loss over a split vocabulary
_HEADS = 1  # dimension of attention's operands


class TensorRules:
    """Applies the rules to one operator at a time."""

    def __init__(self, tensors: Tensors, vocabulary: bool, sums_itself: bool) -> None:
        self._tensors, self._vocabulary, self._sums_itself = tensors, vocabulary, sums_itself

    def split(self, part: Part, node: Node) -> bool:
        """Mark the split outputs of a node; returns whether they are partial sums."""
        dims = [self._tensors.split_dim(part, operand, node.operator not in PRODUCTS) for operand in node.inputs]
        if self._vocabulary and node.operator == "aten::embedding_dense_backward":
            self._tensors.mark_split(part, node.outputs[0], 0)
            return False
        if all(dim is None for dim in dims):
            return False
        if node.operator in PRODUCTS:
            return self._product(part, node, dims)
        if node.operator == "aten::embedding":
            return True
        if node.operator == "aten::nll_loss_forward" or (
            self._sums_itself and not part.segment.name and node.operator in _LOOKED_UP
        ):
            return False
        if node.operator == "aten::cat":
            self._joined(part, node, dims)
            return False
        if node.operator in _ATTENTION:
            for operand in node.outputs:
                if len(self._tensors.numbers[operand.shape]) == 4:
                    self._tensors.mark_split(part, operand, _HEADS)
            return False
        if node.operator in _REDUCTIONS:
            return self._reduction(part, node, dims[0])
        if node.operator.startswith("triton::"):
            self._launched(part, node, dims)
            return False
        self._elementwise(part, node, dims)
        return False

    def _launched(self, part: Part, node: Node, dims: Sequence[int | None]) -> None:
        """Rule for Triton kernels: outputs are split along the same dimension as inputs, counted from the right."""
        read = [
            len(self._tensors.numbers[operand.shape]) - dim
            for position, (operand, dim) in enumerate(zip(node.inputs, dims))
            if dim is not None and position not in node.written
        ]
        if not read:
            return
        from_right = read[0]
        if len(set(read)) > 1 or (from_right == 1 and "Norm" in node.operator):
            raise self._impossible(part, node, "it works along the dimension that is split, or along several")
        for position in node.written:
            shape = self._tensors.numbers[node.inputs[position].shape]
            if len(shape) >= from_right:
                self._tensors.mark_split(part, node.inputs[position], len(shape) - from_right)

    def _joined(self, part: Part, node: Node, dims: Sequence[int | None]) -> None:
        """Rule for concatenation: tensors joined along the split dimension stay split along it."""
        if any(dim is None for dim in dims) or len(set(dims)) > 1:
            raise self._impossible(
                part, node, "it joins split tensors with unsplit ones, or tensors split along different dimensions"
            )
        self._tensors.mark_split(part, node.outputs[0], dims[0] or 0)

    def _product(self, part: Part, node: Node, dims: Sequence[int | None]) -> bool:
        (a, b), out = dims[-2:] if len(dims) < 3 else dims[1:3], node.outputs[0]
        rank = len(self._tensors.numbers[out.shape])
        inner_a, inner_b = a == rank - 1, b == rank - 2
        if inner_a != inner_b:
            raise self._impossible(part, node, "one factor is split along the summed dimension and the other is not")
        if inner_a:
            return True
        split_dims = [dim for dim in (a, b) if dim is not None]
        if len(set(split_dims)) > 1:
            raise self._impossible(part, node, "both factors are split, along different dimensions")
        self._tensors.mark_split(part, out, split_dims[0])
        return False

    def _reduction(self, part: Part, node: Node, dim: int | None) -> bool:
        source, out = node.inputs[0], node.outputs[0]
        rank = len(self._tensors.numbers[source.shape])
        dims_given = node.attributes.get("dim", list(range(rank)))
        summed = (
            {summed_dim % rank for summed_dim in (dims_given if isinstance(dims_given, list) else [int(dims_given)])}
            if rank
            else set()
        )
        if dim is None:
            return False
        if dim in summed or not summed:
            return True
        out_dim = dim if node.attributes.get("keepdim") else dim - sum(summed_dim < dim for summed_dim in summed)
        self._tensors.mark_split(part, out, out_dim)
        return False

    def _elementwise(self, part: Part, node: Node, dims: Sequence[int | None]) -> None:
        operand, dim = next((operand, dim) for operand, dim in zip(node.inputs, dims) if dim is not None)
        from_right = len(self._tensors.numbers[operand.shape]) - dim
        size = self._tensors.numbers[operand.shape][dim]
        for out in node.outputs:
            shape = self._tensors.numbers[out.shape]
            if len(shape) < from_right or shape[-from_right] != size:
                raise self._impossible(part, node, "its result has a different size than the split tensor")
            self._tensors.mark_split(part, out, len(shape) - from_right)
        for other, other_dim in zip(node.inputs, dims):
            shape = self._tensors.numbers[other.shape]
            if other_dim is None and len(shape) >= from_right and shape[-from_right] == size:
                raise self._impossible(part, node, "it combines a split tensor with an unsplit one")

    def _impossible(self, part: Part, node: Node, why: str) -> InputError:
        module_path = f"{part.segment.name}{node.scope}" if node.scope.startswith(".") else node.scope
        return InputError(
            f"{self._tensors.graph.model} cannot be split by tensor parallelism: at {node.operator} of "
            f"{module_path or 'the model'}, {why}; use a tensor degree of 1"
        )
