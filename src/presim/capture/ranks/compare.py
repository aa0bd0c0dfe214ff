"""Whether two ranks do the same: a rolling hash over what each asked of its device from its first forward on.

Set-up is left out: rank 0 often does more there (it hands out seeds and weights), which no step shows. What it leaves
behind counts, as the memory that is allocated when the first forward begins.

Of an entry counts what it does and where: kind, signature, stream (by order of first use), bytes of an allocation, and
for collectives the group's name, its size and the message. Host time, addresses, module names and a rank's own place do
not. What comes before the first forward pass does not count either: one rank reads or logs there what others do not.

A large block may be larger than what was asked for: the caching allocator hands out a free one whole unless more than
1 MiB would be left of it, and which ones are free depends on when other streams were done with them, so on the host's
pace. Such sizes are compared beside the hash, with that much between them. So are the bytes that an optimizer's kernel
over many tensors moves, with 1 % between them: Megatron's first tensor parallel rank has what all of them hold alike in
its part of the gradients' norm, and the others have not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import COMPILING, Group, Kind, Phase, Trace
from presim.trace.signatures import Collective, Optimizer, Signature, family

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
_COUNTED = (
    *(Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.EVENT_SYNC, Kind.STREAM_SYNC),
    *(Kind.DEVICE_SYNC, Kind.ALLOC, Kind.STEP),
)
_LEFT_WHOLE = 1 << 20  # bytes: kSmallSize in PyTorch's CUDACachingAllocator, of smaller blocks and of what is left over
_SET_UP_NOISE = 0.005  # of the memory that set-up left behind: what such blocks may add up to
_PER_PARAMETERS = 0.01  # of an optimizer kernel's bytes; of small ones 1 MiB, which takes a third of a microsecond
_ON_STREAM = (Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.STREAM_SYNC)


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What a rank did up to the end of a step."""

    words: Words  # by counted entry: what it does
    amounts: Ints  # by counted entry: bytes of a large allocation or an optimizer's kernel, else 0; first: held before
    slack: Ints  # by counted entry: how far another rank's amount may be away
    entries: NDArray[np.int64]  # by counted entry: its index in the trace

    @property
    def digest(self) -> bytes:
        """Equal where ranks do the same, but for amounts."""
        return hashlib.blake2b(self.words.tobytes(), digest_size=16).digest()

    def first_difference(self, other: Fingerprint) -> int | None:
        """The first of our entries that the other has not at its place; None where all are alike."""
        common = min(len(self.words), len(other.words))
        apart = np.abs(self.amounts[:common] - other.amounts[:common])
        allowed = np.maximum(self.slack[:common], other.slack[:common])
        different = np.flatnonzero((self.words[:common] != other.words[:common]) | (apart > allowed))
        if len(different):
            return int(self.entries[different[0]])
        if len(self.words) == len(other.words):
            return None
        return int(self.entries[common]) if common < len(self.words) else -1


def fingerprint(trace: Trace, steps: int | None = None) -> Fingerprint:
    """Of the first so many steps, None: of all, from the first forward pass on; without steps of the whole trace."""
    slices = trace.steps()
    end = slices[min(steps, len(slices)) - 1].stop if slices and steps else len(trace)
    begin = _first_forward(trace, end)
    kinds = trace.columns["kind"][:end]
    entries = np.flatnonzero(np.isin(kinds, np.array([int(kind) for kind in _COUNTED], np.uint8)))
    entries = entries[(entries >= begin) & ~_compiling(trace)[entries]]
    table = np.array([*(_word(_content(signature, trace)) for signature in trace.signatures), 0], np.uint64)
    kind = kinds[entries].astype(np.uint64)
    signature = table[trace.columns["signature"][entries].astype(np.int64)]
    on_stream = np.isin(kind, np.array([int(one) for one in _ON_STREAM], np.uint64))
    stream = np.zeros(len(entries), np.uint64)
    stream[on_stream] = _by_appearance(trace.columns["stream"][entries][on_stream])
    sizes = np.where(kind == Kind.ALLOC, trace.columns["value"][entries], 0).astype(np.int64)
    is_large = sizes > _LEFT_WHOLE
    value = np.where(is_large, 1, sizes).astype(np.uint64)  # no small block has one byte
    words = (signature * np.uint64(31) + kind) * np.uint64(0x9E3779B97F4A7C15) ^ stream ^ (value << np.uint64(8))
    moved = _moved_by_optimizers(trace)[trace.columns["signature"][entries].astype(np.int64)]
    held = _allocated(trace, begin)
    noise = np.concatenate([[_SET_UP_NOISE * held], _PER_PARAMETERS * moved])
    return Fingerprint(
        np.concatenate([np.zeros(1, np.uint64), words]),
        np.concatenate([[held], np.where(is_large, sizes, moved)]).astype(np.int64),
        _LEFT_WHOLE + noise.astype(np.int64),
        np.concatenate([[begin], entries]).astype(np.int64),
    )


def _moved_by_optimizers(trace: Trace) -> Ints:
    """Bytes by signature, and a zero for none."""
    found = [one.bytes_read + one.bytes_written if isinstance(one, Optimizer) else 0 for one in trace.signatures]
    return np.array([*found, 0], np.int64)


def _first_forward(trace: Trace, end: int) -> int:
    """Index of the first entry of a forward; 0 where there is none before ``end``. A compiler traces forwards, too."""
    forward = np.flatnonzero((trace.columns["phase"][:end] == Phase.FORWARD) & ~_compiling(trace)[:end])
    return int(forward[0]) if len(forward) else 0


def _compiling(trace: Trace) -> NDArray[np.bool_]:
    scope = trace.scopes.index(COMPILING) if COMPILING in trace.scopes else len(trace.scopes)
    found: NDArray[np.bool_] = trace.columns["scope"] == scope
    return found


def _allocated(trace: Trace, end: int) -> int:
    """Bytes handed out before an entry and not back."""
    kind, value = trace.columns["kind"][:end], trace.columns["value"][:end].astype(np.int64)
    return int(value[kind == Kind.ALLOC].sum() - value[kind == Kind.FREE].sum())


def _by_appearance(values: NDArray[np.generic]) -> Words:
    """Each value as a number in the order of first appearance: streams are numbered device by device."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.uint64)
    place[np.argsort(first)] = np.arange(len(first))
    result: Words = place[inverse.reshape(-1)]
    return result


def _content(signature: Signature, trace: Trace) -> Hashable:
    if isinstance(signature, Optimizer):
        return signature.operator, signature.dtype
    if not isinstance(signature, Collective):
        return msgspec.json.encode(signature)
    groups = trace.manifest.groups
    known = 0 <= signature.group < len(groups)
    role: Hashable = _role(groups[signature.group]) if known else signature.group
    content = (signature.kind, signature.bytes, signature.dtype, signature.fused, role, signature.routed)
    splits = signature.splits
    return content if splits is None else (*content, splits.leaving, splits.arriving)


def _role(group: Group) -> Hashable:
    """A group by its size and, where a purpose gave it one, its name; PyTorch's own names are numbers of groups."""
    return ("" if group.name.startswith("group ") else group.name, group.size)


def _word(content: Hashable) -> int:
    return int.from_bytes(hashlib.blake2b(repr(content).encode(), digest_size=8).digest(), "little")


def describe_difference(one: Trace, other: Trace, entry: int) -> str:
    """Where two ranks part, in a few words; ``entry`` as `Fingerprint.first_difference` gave it."""
    ranks = f"rank {other.manifest.rank}", f"rank {one.manifest.rank}"
    if entry < 0:
        return f"{ranks[0]} goes on where {ranks[1]} ends its first step"
    scope = int(one.columns["scope"][entry])
    place = f" in {one.scopes[scope]}" if scope >= 0 else ""
    return f"{ranks[0]} does not as {ranks[1]} does from entry {entry} ({_doing(one, entry)}){place} on"


def _doing(trace: Trace, entry: int) -> str:
    """What an entry is, in a word or two."""
    columns = trace.columns
    index, operator = int(columns["signature"][entry]), int(columns["operator"][entry])
    signature = trace.signatures[index] if index >= 0 else None
    if isinstance(signature, Collective):
        return f"{signature.kind} of {signature.bytes} bytes"
    if columns["kind"][entry] == Kind.ALLOC:
        return f"allocation of {columns['value'][entry]} bytes"
    if signature is not None:
        return trace.operators[operator] if operator >= 0 else family(signature)
    return Kind(int(columns["kind"][entry])).name.lower().replace("_", " ")


def spread(count: int, samples: int) -> Sequence[int]:
    """Indices to look at among ``count``, the first excluded: the last, the second, then halves of the largest gaps."""
    chosen: list[int] = []
    for index in (count - 1, 1):
        if 0 < index < count and index not in chosen:
            chosen.append(index)
    while len(chosen) < samples:
        marks = sorted({0, *chosen, count - 1})
        gap, start = max(((after - before, -before) for before, after in itertools.pairwise(marks)), default=(0, 0))
        if gap < 2:
            break
        chosen.append(-start + gap // 2)
    return chosen[:samples]
