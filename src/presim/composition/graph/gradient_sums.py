"""Sums of gradients in a recording, as autograd's engine makes them without a dispatch mode."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from presim.composition.graph.recording import RecordedCall, Recording, Tensor


def sum_in_place(recording: Recording) -> Recording:
    """Sum gradients into the first one as autograd's engine does, unless it is a view, which shares its memory.

    Below a dispatch mode it never does so (`isTensorSubclassLike` in torch/csrc/autograd/input_buffer.cpp).
    """
    made_as: dict[int, tuple[int, ...]] = {}  # storage -> shape of the tensor that allocated it
    renamed: dict[int, int] = {}
    calls = []

    def with_renamed_storages(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
        return tuple(
            msgspec.structs.replace(tensor, storage=renamed[tensor.storage]) if tensor.storage in renamed else tensor
            for tensor in tensors
        )

    for call in recording.calls:
        call = msgspec.structs.replace(
            call, inputs=with_renamed_storages(call.inputs), outputs=with_renamed_storages(call.outputs)
        )
        for tensor in call.outputs:
            made_as.setdefault(tensor.storage, tensor.shape)
        if _is_sum(call) and call.inputs[0].shape == made_as.get(call.inputs[0].storage):
            (total,) = call.outputs
            target = call.inputs[0].storage
            renamed[total.storage] = target
            outputs = (msgspec.structs.replace(total, storage=target),)
            call = msgspec.structs.replace(call, operator="aten::add_", outputs=outputs, written=(0,))
        calls.append(call)
    gradients = {renamed.get(storage, storage): name for storage, name in recording.gradients.items()}
    return msgspec.structs.replace(recording, calls=tuple(calls), gradients=gradients)


def _is_sum(call: RecordedCall) -> bool:
    """Autograd's sum of two gradients: formulas of backward operators add nothing to each other."""
    if not (call.backward and call.operator == "aten::add" and len(call.inputs) == 2):
        return False
    first, second = call.inputs
    return first.shape == second.shape and first.dtype == second.dtype and first.storage != second.storage
