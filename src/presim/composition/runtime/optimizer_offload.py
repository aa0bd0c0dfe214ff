"""Optimizer states in host memory: updated there, or streamed to the GPU for its update.

``cpu``
    Gradients go down, the CPU updates, parameters come up, as Megatron's ``--optimizer-cpu-offload`` with
    ``--overlap-cpu-optimizer-d2h-h2d`` and DeepSpeed's ZeRO-Offload do. Copies of one part overlap the update of
    another. The norm is taken and gradients are clipped on the GPU before.
``states``
    States come up in parts, the GPU updates, states go down, as DeepSpeed's DeepCompile offloads Adam's states. Two
    parts are on the GPU at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import FROM_HOST, TO_HOST, Rows, Tables
from presim.composition.host_gaps import HostTimes
from presim.composition.runtime.optimizer import Held
from presim.composition.runtime.updates import Update
from presim.composition.schedule import Do
from presim.hardware.host import TYPICAL_FACTOR
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Copy, Optimizer

CPU_NS = 0.71  # of a node's CPUs for a number: 8.2 s for 11.6 billion (deepspeedai/DeepSpeed pull request 735)
_PART = 1 << 24  # numbers that are copied and updated together: presim's choice
_BUFFERS = 2


def host_bytes(held_tensors: Sequence[Held], kind: Update, offload_kind: str, parameter_bytes: int) -> int:
    """Bytes of host memory of one rank; ``parameter_bytes``: of a number of the model's parameters."""
    states = sum(sum(kind.state_bytes(tensor.elements, dtype_bytes(tensor.dtype))) for tensor in held_tensors)
    if offload_kind == "states":
        return states
    copies = sum(
        2 * dtype_bytes(tensor.dtype) * tensor.elements for tensor in held_tensors
    )  # gradients, and parameters as updated
    sent = sum(
        tensor.elements * parameter_bytes for tensor in held_tensors if dtype_bytes(tensor.dtype) != parameter_bytes
    )
    return states + copies + sent


def update(
    held_tensors: Sequence[Held],
    kind: Update,
    offload_kind: str,
    parameter_bytes: int,
    sharers: int,
    tables: Tables,
    hosts: HostTimes,
) -> list[Do]:
    """The update; ``parameter_bytes``: of a number that comes up; ``sharers``: ranks that share a node's CPUs."""
    rows = Rows(tables, hosts, Phase.OPTIMIZER)
    if offload_kind == "cpu":
        _update_on_host(rows, held_tensors, parameter_bytes, sharers)
    else:
        _stream_states(rows, held_tensors, kind)
    template = rows.template()
    return [Do(template, tuple(("offloaded update", slot) for slot in template.slots))]


def _parts(held_tensors: Sequence[Held]) -> Iterator[int]:
    """Numbers of each part."""
    remaining_elements = sum(tensor.elements for tensor in held_tensors)
    while remaining_elements > 0:
        yield min(remaining_elements, _PART)
        remaining_elements -= _PART


def _update_on_host(rows: Rows, held_tensors: Sequence[Held], parameter_bytes: int, sharers: int) -> None:
    """All gradients are sent at once; the host waits for a part, updates it, and sends its parameters."""
    gradient_bytes = dtype_bytes(held_tensors[0].dtype)
    ns = CPU_NS * sharers / TYPICAL_FACTOR  # traces have times of the reference host
    rows.record("begun", 0)
    for stream in (TO_HOST, FROM_HOST):
        rows.wait("begun", stream)
    parts = list(_parts(held_tensors))
    for index, part in enumerate(parts):
        rows.work("aten::copy_", Copy("d2h", part * gradient_bytes, pinned=True), stream=TO_HOST)
        rows.record(f"down {index}", TO_HOST)
    for index, part in enumerate(parts):
        rows.event_sync(f"down {index}")
        up = Copy("h2d", part * parameter_bytes, pinned=True)
        rows.work("aten::copy_", up, stream=FROM_HOST, host_ns=round(part * ns))
    rows.record("up", FROM_HOST)
    rows.wait("up", 0)


def _stream_states(rows: Rows, held_tensors: Sequence[Held], kind: Update) -> None:
    dtype, tensors = held_tensors[0].dtype, sum(tensor.tensors for tensor in held_tensors)
    element_bytes = dtype_bytes(dtype)
    parts = list(_parts(held_tensors))
    if kind.counts:
        steps = tensors * dtype_bytes("float32")
        rows.work("aten::_foreach_add_", Optimizer(steps, steps, tensors, "float32", tensors, "aten::_foreach_add_"))
    buffers = [sum(kind.state_bytes(part, element_bytes)) for part in parts[:_BUFFERS]]
    for index, size in enumerate(buffers):
        rows.alloc(f"buffer {index}", rounded(size), Category.OPTIMIZER_STATE, operator="aten::empty")
    rows.record("begun", 0)
    rows.wait("begun", FROM_HOST)
    for index, part in enumerate(parts):
        if index >= _BUFFERS:
            rows.wait(f"down {index - _BUFFERS}", FROM_HOST)
        states = kind.state_bytes(part, element_bytes)
        for size in states:
            rows.work("aten::copy_", Copy("h2d", size, pinned=True), stream=FROM_HOST)
        rows.record(f"up {index}", FROM_HOST)
        rows.wait(f"up {index}", 0)
        bytes_read, bytes_written = kind.traffic(part, element_bytes)
        share = max(1, round(tensors * part / sum(parts)))
        rows.work(kind.operator, Optimizer(bytes_read, bytes_written, part, dtype, share, kind.operator))
        rows.record(f"updated {index}", 0)
        rows.wait(f"updated {index}", TO_HOST)
        for size in states:
            rows.work("aten::copy_", Copy("d2h", size, pinned=True), stream=TO_HOST)
        rows.record(f"down {index}", TO_HOST)
    for index in range(max(0, len(parts) - _BUFFERS), len(parts)):
        rows.wait(f"down {index}", 0)
    for index, size in enumerate(buffers):
        rows.free(f"buffer {index}", rounded(size))
