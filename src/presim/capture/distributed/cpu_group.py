"""Process groups on the CPU (Gloo's place): present ranks exchange for real, through the launcher's store.

A rank that does not run is heard through the rank that stands for it, where that one is a member; else it is taken to
hold what this rank holds. Each collective posts this rank's part under a key of its own and reads those of the others,
in the order in which the group's collectives come.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import Backend, ReduceOp, _create_work_from_future

from presim.capture.rendezvous.present_ranks import posted_key
from presim.trace.representatives import Representatives

if not hasattr(Backend, "all_gather_single"):
    raise ImportError("PyTorch before 2.14 knows no backends written in Python")

_SIMPLE: dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}


class CpuGroup(Backend):
    """One group; ``members``: global ranks in the group's order."""

    def __init__(self, store: Any, rank: int, members: Sequence[int], representatives: Representatives) -> None:
        super().__init__(rank, len(members))
        self.store = store
        self.me = rank
        self.members = members
        voices = representatives.of(members)
        places = {int(members[at]): at for at in np.flatnonzero(np.isin(members, representatives.captured)).tolist()}
        # Who is heard for each member, as a rank of the group.
        self.heard = [places.get(int(voice), rank) for voice in voices.tolist()]
        self.heard[rank] = rank
        self.present = tuple(sorted(places.values())) or (rank,)
        self.calls = 0
        self.messages: Counter[tuple[int, int, int]] = Counter()

    def getBackendName(self) -> str:
        """Shown by PyTorch."""
        return "gloo"

    # Messages

    def _post(self, label: str, tensor: torch.Tensor) -> None:
        if len(self.present) > 1:
            self.store.set(posted_key(self.members[self.me], label), _bytes(tensor))

    def _read(self, label: str, source: int, into: torch.Tensor, own: torch.Tensor | None) -> None:
        """What a member of the group posted; what this rank holds where that member does not run any more."""
        found = b"" if source == self.me else self.store.get(posted_key(self.members[source], label))
        if found:
            _fill(into, found)
        elif own is not None and own.data_ptr() != into.data_ptr():
            _fill(into, _bytes(own))

    def _label(self, kind: str) -> str:
        self.calls += 1
        return f"{kind}/{self.calls}"

    def _parts(self, label: str, tensor: torch.Tensor) -> dict[int, torch.Tensor]:
        """By the ranks that are heard in this group: what each of them posted."""
        self._post(label, tensor)
        parts = {self.me: tensor}
        for source in sorted(set(self.heard) - {self.me}):
            parts[source] = torch.empty_like(tensor, memory_format=torch.contiguous_format)
            self._read(label, source, parts[source], tensor)
        return parts

    # Collectives

    def _reduced(self, label: str, tensor: torch.Tensor, op: Any) -> torch.Tensor:
        parts = self._parts(label, tensor)
        counts = Counter(self.heard)
        op = getattr(op, "op", op)
        if op in (ReduceOp.SUM, ReduceOp.AVG):
            terms = [part * counts[source] for source, part in parts.items()]
            total = functools.reduce(torch.add, terms)
            return total / len(self.members) if op == ReduceOp.AVG else total
        if op == ReduceOp.PRODUCT:
            return functools.reduce(torch.mul, [part ** counts[source] for source, part in parts.items()])
        combine = _SIMPLE[op]
        total = tensor
        for source, part in parts.items():
            total = total if source == self.me else combine(total, part)
        return total

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """Every tensor by itself."""
        for tensor in tensors:
            tensor.copy_(self._reduced(self._label("allreduce"), tensor, opts.reduceOp if opts else ReduceOp.SUM))
        return _done(tensors)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """The same."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        """The root gets the sum; the others keep what they hold."""
        total = self._reduced(self._label("reduce"), tensors[0], opts.reduceOp)
        if opts.rootRank == self.me:
            tensors[0].copy_(total)
        return _done(tensors)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        """From the root, or from the rank that stands for it."""
        label, root = self._label("broadcast"), opts.rootRank
        source = self.heard[root]
        if self.me in (source, root):
            self._post(label, tensors[0])
        else:
            self._read(label, source, tensors[0], None)
        return _done(tensors)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        """A tensor from each member."""
        parts = self._parts(self._label("allgather"), inputs[0])
        for output, source in zip(outputs[0], self.heard):
            _fill(output, _bytes(parts[source]))
        return _done(outputs[0])

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """The same into one tensor."""
        return self.allgather([list(output.view(-1).chunk(len(self.members)))], [tensor.reshape(-1)])

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        """Several of these."""
        for output, tensor in zip(outputs, inputs):
            self.all_gather_single(output, tensor)
        return _done(outputs)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Any:
        """The root gets a tensor from each member."""
        label = self._label("gather")
        if opts.rootRank == self.me:
            for output, source in zip(outputs[0], self.heard):
                self._read(label, source, output, inputs[0])
                if source == self.me:
                    _fill(output, _bytes(inputs[0]))
        else:
            self._post(label, inputs[0])
        return _done(inputs)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Any:
        """Each member gets its tensor from the root; from an absent root nothing comes."""
        label, root = self._label("scatter"), opts.rootRank
        if root == self.me:
            for member in self.present:
                self._post(f"{label}/{member}", inputs[0][member])
            _fill(outputs[0], _bytes(inputs[0][self.me]))
        elif root in self.present:
            self._read(f"{label}/{self.me}", root, outputs[0], None)
        return _done(outputs)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Any:
        """Each member gets the sum of its tensors."""
        for member in self.present:
            total = self._reduced(self._label("reduce_scatter"), inputs[0][member], opts.reduceOp)
            if member == self.me:
                outputs[0].copy_(total)
        return _done(outputs)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Any:
        """The same from one tensor."""
        slices = [part.reshape(output.shape) for part in tensor.reshape(-1).chunk(len(self.members))]
        return self.reduce_scatter([output], [slices], opts)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        """A tensor from each member to each other one; absent ones send what this rank would send to itself."""
        label = self._label("alltoall")
        for member in self.present:
            self._post(f"{label}/{member}", inputs[member])
        for member, output in enumerate(outputs):
            source = self.heard[member]
            self._read(f"{label}/{self.me}", source, output, inputs[self.me])
            if source == self.me:
                _fill(output, _bytes(inputs[self.me]))
        return _done(outputs)

    def all_to_all_single(
        self, output: torch.Tensor, tensor: torch.Tensor, taken: list[int], given: list[int], opts: Any = None
    ) -> Any:
        """The same, in pieces of one tensor."""
        size = len(self.members)
        cut = [
            list(part.split(sizes) if sizes else part.chunk(size)) for part, sizes in ((output, taken), (tensor, given))
        ]
        return self.alltoall(cut[0], cut[1])

    def barrier(self, opts: Any = None) -> Any:
        """Until every present member is here."""
        token = torch.ones(1, dtype=torch.uint8)
        self._parts(self._label("barrier"), token)
        return _done([token])

    def send(self, tensors: list[torch.Tensor], target: int, tag: int) -> Any:
        """To an absent member it goes nowhere."""
        self.messages[self.me, target, tag] += 1
        self._post(f"send/{target}/{tag}/{self.messages[self.me, target, tag]}", tensors[0])
        return _done(tensors)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Any:
        """From an absent member comes what the memory holds."""
        self.messages[source, self.me, tag] += 1
        if source in self.present:
            self._read(f"send/{self.me}/{tag}/{self.messages[source, self.me, tag]}", source, tensors[0], None)
        return _done(tensors)


# Names of PyTorch 2.14's collectives before they were called single.
for _old, _new in (
    ("_allgather_base", "all_gather_single"),
    ("allgather_into_tensor_coalesced", "all_gather_single_coalesced"),
    ("_reduce_scatter_base", "reduce_scatter_single"),
    ("alltoall_base", "all_to_all_single"),
):
    setattr(CpuGroup, _old, getattr(CpuGroup, _new))


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _fill(tensor: torch.Tensor, content: bytes) -> None:
    """As many bytes as there are, at most as many as fit."""
    flat = torch.zeros(tensor.numel() * tensor.element_size(), dtype=torch.uint8)
    size = min(len(content), len(flat))
    flat[:size] = torch.frombuffer(bytearray(content[:size]), dtype=torch.uint8) if size else flat[:0]
    tensor.copy_(flat.view(tensor.dtype).reshape(tensor.shape))


def _done(tensors: Sequence[torch.Tensor]) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(list(tensors))
    return _create_work_from_future(future)
