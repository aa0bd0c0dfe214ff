"""Rows that are looked up, gathered, added or written by index.

Indices are random and uniform over the table, as in a step on random tokens. Text uses few rows often, which caches
then hold, and sorted rows are faster. If the table is smaller than the rows looked up, its size is unknown: half and an
eighth of them are measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from presim.cost.profile.calls.call import Call, Tensor, Tensors
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Index

_GATHER = "aten::gather"  # also of rows: embedding and index_select dispatch to it
_ADDED = "aten::scatter_add_"  # also of rows: index_add_ dispatches to it, unless it scales
_SCALED = "aten::index_add_"
_WRITTEN = "aten::index_copy_"
_INDEX = "aten::index"
OPERATORS = frozenset((_GATHER, _ADDED, _SCALED, _WRITTEN, _INDEX))
_SMALLER = (2, 8)
_BY_BYTES = {4: "float32", 2: "bfloat16"}


def propose(signature: Index) -> Iterator[Call]:
    """Calls with an index for each row or element that moves; 8 bytes per index if that divides the bytes."""
    dtype, moved_elements = signature.dtype, signature.bytes_written // dtype_bytes(signature.dtype)
    if dtype == "int64" and signature.operator in (_GATHER, _ADDED):
        # With a smaller table, the index is the largest operand, because it appears once for each element of a row.
        dtype = _BY_BYTES.get(signature.bytes_written // max(signature.elements, 1), "")
        moved_elements = signature.elements
    for address in ("int64", "int32"):
        indices, remainder = divmod(signature.bytes_read - signature.bytes_written, dtype_bytes(address))
        if dtype and not remainder and indices > 0 and moved_elements and moved_elements % indices == 0:
            if moved_elements == indices and signature.operator in (_GATHER, _ADDED):
                yield _single(signature, address, indices)
            else:
                yield from _rows(signature, dtype, address, indices, moved_elements // indices)
            return


def _rows(signature: Index, dtype: str, address: str, indices: int, width: int) -> Iterator[Call]:
    name = signature.operator
    for rows in _tables(signature, width, indices):
        table, selected_rows = Tensor(dtype, (rows, width)), Tensor(dtype, (indices, width))
        index = Tensor(address, (indices,), below=rows)
        if name == _INDEX:
            yield Call(name, (table, Tensors(address, (index.shape,), below=rows)), (selected_rows,))
        elif name == _GATHER:
            yield Call(name, (table, index), (selected_rows,), expanded=width, through="aten::embedding")
        elif name == _ADDED:
            yield Call(name, (table, 0, index, selected_rows), (table,), expanded=width, through=_SCALED)
        else:
            scaled = (("alpha", -0.1),) if name == _SCALED else ()
            yield Call(name, (table, 0, index, selected_rows), (table,), scaled)


def _tables(signature: Index, width: int, indices: int) -> Iterator[int]:
    """Candidate numbers of table rows."""
    if signature.elements > width * indices:
        yield signature.elements // width
    else:
        yield from (max(1, indices // part) for part in _SMALLER)


def _single(signature: Index, address: str, indices: int) -> Call:
    """One element per row; the table has as many rows as there are indices."""
    width = max(signature.elements // indices, 1)
    table, elements = Tensor(signature.dtype, (indices, width)), Tensor(signature.dtype, (indices, 1))
    index = Tensor(address, elements.shape, below=width)
    if signature.operator == _GATHER:
        return Call(_GATHER, (table, 1, index), (elements,))
    return Call(_ADDED, (table, 1, index, elements), (table,))
