"""CPU process groups in place of Gloo's: ranks that run exchange real data through the launcher's store.

An absent rank's data comes from its representative if that is a member of the group; otherwise it is assumed to equal
this rank's. Each collective posts this rank's part under its own key and reads the parts of the others, in the order of
the group's collectives. A message is read when somebody waits for it: as with Gloo, a rank may ask for a message before
it sends its own.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch._C._distributed_c10d import Backend, ReduceOp, Work, _create_work_from_future

from presim.capture.rendezvous.present_ranks import posted_key
from presim.trace.representatives import Representatives

if not hasattr(Backend, "all_gather_single"):
    raise ImportError("PyTorch before 2.14 does not support backends written in Python")

_ELEMENTWISE: dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
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
        self.own_rank = rank
        self.members = members
        representing = representatives.of(members)
        group_ranks = np.flatnonzero(np.isin(members, representatives.captured)).tolist()
        group_rank_by_rank = {int(members[group_rank]): group_rank for group_rank in group_ranks}
        # For each member, the group rank whose data is used for it.
        self.sources = [group_rank_by_rank.get(int(representative), rank) for representative in representing.tolist()]
        self.sources[rank] = rank
        self.present = tuple(sorted(group_rank_by_rank.values())) or (rank,)
        self.calls = 0
        self.messages: Counter[tuple[int, int, int]] = Counter()
        self.sent: dict[tuple[int, int], torch.Tensor] = {}  # last message to each absent member and tag
        self.asked: list[_Message] = []  # kept alive until somebody has waited for them

    def getBackendName(self) -> str:
        """Shown by PyTorch."""
        return "gloo"

    # Messages

    def _post(self, label: str, tensor: torch.Tensor) -> None:
        if len(self.present) > 1:
            self.store.set(posted_key(self.members[self.own_rank], label), _bytes(tensor))

    def _read(self, label: str, source: int, into: torch.Tensor, fallback: torch.Tensor | None) -> None:
        """Read what a member posted; ``fallback`` instead if that member has ended."""
        posted = b"" if source == self.own_rank else self.store.get(posted_key(self.members[source], label))
        if posted:
            _fill(into, posted)
        elif fallback is not None and fallback.data_ptr() != into.data_ptr():
            _fill(into, _bytes(fallback))

    def _label(self, kind: str) -> str:
        self.calls += 1
        return f"{kind}/{self.calls}"

    def _parts(self, label: str, tensor: torch.Tensor) -> dict[int, torch.Tensor]:
        """Post this rank's part and read the others: group rank -> tensor."""
        self._post(label, tensor)
        parts = {self.own_rank: tensor}
        for source in sorted(set(self.sources) - {self.own_rank}):
            parts[source] = torch.empty_like(tensor, memory_format=torch.contiguous_format)
            self._read(label, source, parts[source], tensor)
        return parts

    # Collectives

    def _reduce_parts(self, label: str, tensor: torch.Tensor, op: Any) -> torch.Tensor:
        parts = self._parts(label, tensor)
        counts = Counter(self.sources)
        op = getattr(op, "op", op)
        if op in (ReduceOp.SUM, ReduceOp.AVG):
            terms = [part * counts[source] for source, part in parts.items()]
            total = functools.reduce(torch.add, terms)
            return total / len(self.members) if op == ReduceOp.AVG else total
        if op == ReduceOp.PRODUCT:
            return functools.reduce(torch.mul, [part ** counts[source] for source, part in parts.items()])
        combine = _ELEMENTWISE[op]
        total = tensor
        for source, part in parts.items():
            total = total if source == self.own_rank else combine(total, part)
        return total

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """Reduce each tensor separately."""
        for tensor in tensors:
            tensor.copy_(self._reduce_parts(self._label("allreduce"), tensor, opts.reduceOp if opts else ReduceOp.SUM))
        return _done(tensors)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """Same as `allreduce`."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        """The root gets the reduction; the others keep their tensors."""
        total = self._reduce_parts(self._label("reduce"), tensors[0], opts.reduceOp)
        if opts.rootRank == self.own_rank:
            tensors[0].copy_(total)
        return _done(tensors)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        """From the root or its representative."""
        label, root = self._label("broadcast"), opts.rootRank
        source = self.sources[root]
        if self.own_rank in (source, root):
            self._post(label, tensors[0])
        else:
            self._read(label, source, tensors[0], None)
        return _done(tensors)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        """Gather one tensor from each member."""
        parts = self._parts(self._label("allgather"), inputs[0])
        for output, source in zip(outputs[0], self.sources):
            _fill(output, _bytes(parts[source]))
        return _done(outputs[0])

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """Gather into one tensor."""
        return self.allgather([list(output.view(-1).chunk(len(self.members)))], [tensor.reshape(-1)])

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        """Several `all_gather_single` calls."""
        for output, tensor in zip(outputs, inputs):
            self.all_gather_single(output, tensor)
        return _done(outputs)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Any:
        """The root gets one tensor from each member."""
        label = self._label("gather")
        if opts.rootRank == self.own_rank:
            for output, source in zip(outputs[0], self.sources):
                self._read(label, source, output, inputs[0])
                if source == self.own_rank:
                    _fill(output, _bytes(inputs[0]))
        else:
            self._post(label, inputs[0])
        return _done(inputs)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Any:
        """Each member gets its tensor from the root; an absent root sends nothing."""
        label, root = self._label("scatter"), opts.rootRank
        if root == self.own_rank:
            for member in self.present:
                self._post(f"{label}/{member}", inputs[0][member])
            _fill(outputs[0], _bytes(inputs[0][self.own_rank]))
        elif root in self.present:
            self._read(f"{label}/{self.own_rank}", root, outputs[0], None)
        return _done(outputs)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Any:
        """Each member gets the reduction of its tensors."""
        for member in self.present:
            total = self._reduce_parts(self._label("reduce_scatter"), inputs[0][member], opts.reduceOp)
            if member == self.own_rank:
                outputs[0].copy_(total)
        return _done(outputs)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Any:
        """Reduce and scatter one tensor."""
        slices = [part.reshape(output.shape) for part in tensor.reshape(-1).chunk(len(self.members))]
        return self.reduce_scatter([output], [slices], opts)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        """One tensor from each member to each other; absent members send what this rank would send to itself."""
        label = self._label("alltoall")
        for member in self.present:
            self._post(f"{label}/{member}", inputs[member])
        for member, output in enumerate(outputs):
            source = self.sources[member]
            self._read(f"{label}/{self.own_rank}", source, output, inputs[self.own_rank])
            if source == self.own_rank:
                _fill(output, _bytes(inputs[self.own_rank]))
        return _done(outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_sizes: list[int],
        input_sizes: list[int],
        opts: Any = None,
    ) -> Any:
        """`alltoall` on pieces of one tensor."""
        size = len(self.members)
        pieces = [
            list(part.split(sizes) if sizes else part.chunk(size))
            for part, sizes in ((output, output_sizes), (tensor, input_sizes))
        ]
        return self.alltoall(pieces[0], pieces[1])

    def barrier(self, opts: Any = None) -> Any:
        """Wait for every member that runs."""
        token = torch.ones(1, dtype=torch.uint8)
        self._parts(self._label("barrier"), token)
        return _done([token])

    def send(self, tensors: list[torch.Tensor], target: int, tag: int) -> Any:
        """Send a tensor; dropped if the target is absent."""
        self.messages[self.own_rank, target, tag] += 1
        if target in self.present:
            self._post(f"send/{target}/{tag}/{self.messages[self.own_rank, target, tag]}", tensors[0])
        else:
            self.sent[target, tag] = tensors[0].detach().clone()
        return _done(tensors)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Any:
        """Receive a tensor.

        If the source is absent, it is what this rank sends there before it waits, as in an exchange; else unchanged.
        """
        self.messages[source, self.own_rank, tag] += 1
        label = f"send/{self.own_rank}/{tag}/{self.messages[source, self.own_rank, tag]}"
        self.sent.pop((source, tag), None)

        def arrive() -> None:
            if source in self.present:
                self._read(label, source, tensors[0], None)
            elif (sent_tensor := self.sent.pop((source, tag), None)) is not None:
                _fill(tensors[0], _bytes(sent_tensor))

        self.asked = [*(message for message in self.asked if not message.arrived), message := _Message(arrive, tensors)]
        return message


class _Message(Work):
    """A message that is read at the first wait."""

    def __init__(self, arrive: Callable[[], None], tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self.arrive, self.tensors, self.arrived = arrive, tensors, False

    def wait(self, timeout: Any = None) -> bool:
        """Wait for the message, however long."""
        if not self.arrived:
            self.arrive()
            self.arrived = True
        return True

    def is_completed(self) -> bool:
        """Wait for the message; always true."""
        return self.wait()

    def is_success(self) -> bool:
        """Likewise."""
        return self.wait()

    def result(self) -> list[torch.Tensor]:
        """The tensors."""
        self.wait()
        return self.tensors

    def get_future(self) -> Any:
        """Likewise, as a future that is done."""
        future: Any = torch.futures.Future()
        future.set_result(self.result())
        return future


# Older names of these collectives, which PyTorch 2.14 still calls.
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
    """Fill a tensor from bytes: cut what does not fit, pad with zeros."""
    flat = torch.zeros(tensor.numel() * tensor.element_size(), dtype=torch.uint8)
    size = min(len(content), len(flat))
    flat[:size] = torch.frombuffer(bytearray(content[:size]), dtype=torch.uint8) if size else flat[:0]
    tensor.copy_(flat.view(tensor.dtype).reshape(tensor.shape))


def _done(tensors: Sequence[torch.Tensor]) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(list(tensors))
    return _create_work_from_future(future)
