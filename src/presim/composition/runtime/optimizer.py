"""The end of a step: clip gradients by norm, update the elements that this rank holds, free gradients.

It follows ``torch.nn.utils.get_total_norm``, a multiplication by the clip factor, and
``torch.optim.AdamW(fused=True)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import Rows, Tables
from presim.composition.host_gaps import HostTimes
from presim.composition.runtime.updates import UPDATES, Update
from presim.composition.schedule import Do, Key
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Collective, Copy, Elementwise, Optimizer, Reduction

_FP32 = 4
_PER_LAUNCH = 145_548_485  # most elements of one multi-tensor launch, in captures of PyTorch 2.14
_COLLECTIVE = 1  # default stream of collectives


@dataclasses.dataclass(frozen=True)
class Held:
    """A gradient that this rank holds after the backward pass, with its parameter and optimizer states."""

    name: object
    gradient: Key
    gradient_bytes: int  # bytes of its memory block
    frees: bool  # whether the optimizer frees its memory block
    shards: tuple[int, ...]  # elements of each tensor
    dtype: str = "float32"  # type of gradient, parameter and states
    experts: bool = False  # belongs to experts under expert parallelism

    @property
    def elements(self) -> int:
        """Elements in all tensors."""
        return sum(self.shards)

    @property
    def tensors(self) -> int:
        """Number of tensors."""
        return len(self.shards)


def parameters(sizes: Iterable[int], tables: Tables, hosts: HostTimes, label: str = "held") -> Do:
    """Allocate parameters, which are never freed."""
    rows = Rows(tables, hosts, Phase.OTHER)
    for size in sizes:
        rows.alloc(str(len(rows)), rounded(size), Category.PARAMETER)
    template = rows.template()
    return Do(template, tuple((label, slot) for slot in template.slots))


def end_of_step(
    held_tensors: list[Held],
    *,
    clip: bool,
    groups: list[int],
    expert_groups: list[int] | None = None,
    stages: int = -1,
    total: int = -1,
    update: Sequence[Do] = (),
    tables: Tables,
    hosts: HostTimes,
) -> list[Do]:
    """Actions from the end of the last backward pass to the end of the step.

    ``groups``: over which each tensor's norm is summed; ``expert_groups``: those of experts' tensors; ``stages``: over
    which the total is; ``total``: of all ranks, where the host sums up norms itself (Megatron). ``update``: the update
    of parameters.
    """
    actions: list[Do] = []
    if clip and held_tensors:
        summed = (groups, expert_groups or [], stages)
        clip_action = (
            _clip_by_total(held_tensors, total, tables, hosts)
            if total >= 0
            else _clip(held_tensors, *summed, tables, hosts)
        )
        actions.append(clip_action)
    actions += update
    rows = Rows(tables, hosts, Phase.OPTIMIZER)
    rows.step()
    rows.phase = Phase.OTHER
    keys: dict[str, Key] = {}
    for index, tensor in enumerate(held_tensors):
        if tensor.frees:
            rows.free(f"g{index}", tensor.gradient_bytes)
            keys[f"g{index}"] = tensor.gradient
    template = rows.template()
    return [*actions, Do(template, tuple(keys[slot] for slot in template.slots))]


def states(
    held_tensors: list[Held], optimizer: str, tables: Tables, hosts: HostTimes, offload: str = "none"
) -> list[Do]:
    """States and step counters, which are in fp32 and stay: what the first step makes before its update.

    ``offload``: states in host memory leave the counters here; an update by the CPU leaves nothing.
    """
    if optimizer not in UPDATES or not held_tensors or offload == "cpu":
        return []
    kind = UPDATES[optimizer]
    rows = Rows(tables, hosts, Phase.OPTIMIZER)
    keys: dict[str, Key] = {}
    for tensor in held_tensors:
        for elements in tensor.shards:
            counter = (_FP32,) if kind.counts else ()
            state_sizes = kind.state_bytes(elements, dtype_bytes(tensor.dtype)) if offload == "none" else ()
            for size in (*counter, *state_sizes):
                slot = str(len(keys))
                rows.alloc(slot, rounded(size), Category.OPTIMIZER_STATE)
                keys[slot] = ("state", slot)
    template = rows.template()
    return [Do(template, tuple(keys[slot] for slot in template.slots))]


def _launches(held_tensors: list[Held]) -> list[tuple[int, int]]:
    """(elements, tensors) of each multi-tensor launch."""
    numbers, tensors = sum(tensor.elements for tensor in held_tensors), sum(tensor.tensors for tensor in held_tensors)
    parts = []
    while numbers > 0:
        part = min(numbers, _PER_LAUNCH)
        share = max(1, round(tensors * part / sum(tensor.elements for tensor in held_tensors)))
        parts.append((part, share))
        numbers -= part
    return parts


def _clip(
    held_tensors: list[Held], groups: list[int], expert_groups: list[int], stages: int, tables: Tables, hosts: HostTimes
) -> Do:
    rows = Rows(tables, hosts, Phase.OTHER)
    tensors, dtype = sum(tensor.tensors for tensor in held_tensors), held_tensors[0].dtype
    element_bytes = dtype_bytes(dtype)
    for numbers, share in _launches(held_tensors):
        rows.work(
            "aten::_foreach_norm",
            Optimizer(numbers * element_bytes, share * 4, numbers, dtype, share, "aten::_foreach_norm"),
        )
    norms_bytes = tensors * _FP32
    rows.work("aten::cat", Elementwise(norms_bytes, norms_bytes, tensors, "float32", tensors, "aten::cat"))
    expert_tensors = sum(tensor.tensors for tensor in held_tensors if tensor.experts)
    for index, group in enumerate(groups):
        _summed(rows, str(index), tensors - expert_tensors, group)
    for index, group in enumerate(expert_groups):
        _summed(rows, f"experts {index}", expert_tensors, group)
    norm = "aten::linalg_vector_norm"
    rows.work(norm, Reduction(norms_bytes, _FP32, tensors, "float32", 1, norm))
    if stages >= 0:
        _summed(rows, "stages", 1, stages)
    for name in ("aten::add", "aten::reciprocal", "aten::mul", "aten::clamp"):
        rows.work(name, Elementwise(_FP32, _FP32, 1, "float32", 1, name))
    for numbers, share in _launches(held_tensors):
        size = numbers * dtype_bytes(dtype)
        rows.work("aten::_foreach_mul_", Optimizer(size, size, numbers, dtype, share, "aten::_foreach_mul_"))
    template = rows.template()
    return Do(template, tuple(("clip", slot) for slot in template.slots))


def _clip_by_total(held_tensors: list[Held], group: int, tables: Tables, hosts: HostTimes) -> Do:
    """Clip as `megatron.core.optimizer.clip_grads` does: the host reads the sum of squares over all ranks."""
    rows = Rows(tables, hosts, Phase.OTHER)
    for numbers, share in _launches(held_tensors):
        norm = "te::multi_tensor_l2norm"
        rows.work(norm, Optimizer(numbers * _FP32, share * _FP32, numbers, "float32", share, norm))
    rows.work("aten::pow", Elementwise(_FP32, _FP32, 1, "float32", 1, "aten::pow"))
    rows.work("nccl::all_reduce", Collective("all_reduce", _FP32, "float32", group))
    rows.work("aten::_local_scalar_dense", Copy("d2h", _FP32, pinned=True))
    rows.stream_sync()
    for numbers, share in _launches(held_tensors):
        size, scale = numbers * _FP32, "te::multi_tensor_scale"
        rows.work(scale, Optimizer(size, size, numbers, "float32", share, scale))
    return Do(rows.template(), ())


def _summed(rows: Rows, name: str, numbers: int, group: int) -> None:
    """All-reduce the squared norms over a group."""
    size = numbers * _FP32
    rows.work("aten::pow", Elementwise(size, size, numbers, "float32", 1, "aten::pow"))
    rows.work("aten::copy_", Copy("d2d", size))
    rows.record(f"ready {name}", 0)
    rows.wait(f"ready {name}", _COLLECTIVE)
    rows.work("nccl::all_reduce", Collective("all_reduce", size, "float32", group), stream=_COLLECTIVE)
    rows.record(f"reduced {name}", _COLLECTIVE)
    rows.wait(f"reduced {name}", 0)


def update(held_tensors: list[Held], kind: Update, tables: Tables, hosts: HostTimes) -> Do:
    """Parameters and states are updated on the GPU."""
    rows = Rows(tables, hosts, Phase.OPTIMIZER)
    tensors, dtype = sum(tensor.tensors for tensor in held_tensors), held_tensors[0].dtype
    steps = tensors * _FP32
    if kind.counts:
        rows.work("aten::_foreach_add_", Optimizer(steps, steps, tensors, "float32", tensors, "aten::_foreach_add_"))
    for numbers, share in _launches(held_tensors):
        bytes_read, bytes_written = kind.traffic(numbers, dtype_bytes(dtype))
        rows.work(kind.operator, Optimizer(bytes_read, bytes_written, numbers, dtype, share, kind.operator))
    return Do(rows.template(), ())
