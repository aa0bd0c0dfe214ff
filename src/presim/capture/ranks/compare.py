"""Compares two ranks call by call over all captured steps.

Two ranks are the same where all of this agrees:

* the collectives on every communicator in their order, from the start of the script: kind, message, data type, root,
  and of the communicator its name, its size and the distances between its members;
* sends and receives: to which place of the communicator, counted from the rank's own;
* from the first forward pass on, all device work with its stream (by order of first use), events, synchronisations,
  sizes of allocations and ends of steps;
* memory that is allocated when the first forward pass begins;
* how the script ended.

Host time, addresses, module names and a rank's own place do not count. Neither does other device work before the first
forward pass: one rank reads, seeds or logs there what others do not.

Two amounts have a tolerance. A block above 1 MiB may be up to 1 MiB larger than what was asked for: PyTorch's caching
allocator hands out a free block whole unless more than that is left of it, and which blocks are free depends on the
host's speed. The bytes that an optimizer's kernel moves may differ by 1 %: Megatron's first tensor parallel rank also
counts, in the norm of the gradients, the parameters that all of them hold.

The host's waits for an event within an operator do not count: there the allocator looks for a free block, and whether
it has to wait depends on the host's speed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.trace.collective import MESSAGES
from presim.trace.schema import COMPILING, Group, Kind, Phase, Trace
from presim.trace.signatures import Collective, Optimizer, Signature, family
from presim.units import gib

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
_COUNTED = (
    *(Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.EVENT_SYNC, Kind.STREAM_SYNC),
    *(Kind.DEVICE_SYNC, Kind.ALLOC, Kind.STEP),
)
_LEFT_WHOLE = 1 << 20  # bytes: kSmallSize in PyTorch's CUDACachingAllocator, of smaller blocks and of what is left over
_SET_UP_NOISE = 0.005  # of the memory that set-up left behind: what such blocks may add up to
_PER_PARAMETERS = 0.01  # of an optimizer kernel's bytes; of small ones 1 MiB, which takes a third of a microsecond
HELD, ENDS = -1, -2  # what differs is the memory before the first forward pass; the other one goes on where this ends
_ON_STREAM = (Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.STREAM_SYNC)


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What a rank did in its captured steps."""

    words: Words  # by counted entry: what it does; the first stands for how the script ended
    amounts: Ints  # by counted entry: bytes of a large allocation or an optimizer's kernel, else 0; first: held before
    slack: Ints  # by counted entry: how far another rank's amount may be away
    entries: NDArray[np.int64]  # by counted entry: its index in the trace

    @property
    def digest(self) -> bytes:
        """Equal where ranks do the same, but for amounts."""
        return hashlib.blake2b(self.words.tobytes(), digest_size=16).digest()

    def first_difference(self, other: Fingerprint) -> int | None:
        """The first of our entries that the other does not have at its place; None where all are alike.

        `HELD` or `ENDS` where it is no entry that differs.
        """
        common = min(len(self.words), len(other.words))
        apart = np.abs(self.amounts[:common] - other.amounts[:common])
        allowed = np.maximum(self.slack[:common], other.slack[:common])
        different = np.flatnonzero((self.words[:common] != other.words[:common]) | (apart > allowed))
        if len(different):
            return int(self.entries[different[0]]) if different[0] else HELD
        if len(self.words) == len(other.words):
            return None
        return int(self.entries[common]) if common < len(self.words) else ENDS


def fingerprint(trace: Trace) -> Fingerprint:
    """Of a whole trace."""
    begin = _first_forward(trace)
    kinds = trace.columns["kind"]
    entries = np.flatnonzero(np.isin(kinds, np.array([int(kind) for kind in _COUNTED], np.uint8)))
    entries = entries[((entries >= begin) | (kinds[entries] == Kind.COLLECTIVE)) & ~_compiling(trace)[entries]]
    by_allocator = (kinds[entries] == Kind.EVENT_SYNC) & (trace.columns["operator"][entries] >= 0)
    entries = entries[~by_allocator]
    roles = [_role(group) for group in trace.manifest.groups]
    table = np.array([*(_word(_content(signature, trace, roles)) for signature in trace.signatures), 0], np.uint64)
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
        np.concatenate([np.array([_word(trace.manifest.exit)], np.uint64), words]),
        np.concatenate([[held], np.where(is_large, sizes, moved)]).astype(np.int64),
        _LEFT_WHOLE + noise.astype(np.int64),
        np.concatenate([[begin], entries]).astype(np.int64),
    )


def _moved_by_optimizers(trace: Trace) -> Ints:
    """Bytes by signature, and a zero for none."""
    found = [one.bytes_read + one.bytes_written if isinstance(one, Optimizer) else 0 for one in trace.signatures]
    return np.array([*found, 0], np.int64)


def _first_forward(trace: Trace) -> int:
    """Index of the first entry of a forward pass; 0 where there is none. A compiler traces forward passes, too."""
    forward = np.flatnonzero((trace.columns["phase"] == Phase.FORWARD) & ~_compiling(trace))
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


def _content(signature: Signature, trace: Trace, roles: Sequence[Hashable]) -> Hashable:
    if isinstance(signature, Optimizer):
        return signature.operator, signature.dtype
    if not isinstance(signature, Collective):
        return msgspec.json.encode(signature)
    groups = trace.manifest.groups
    known = 0 <= signature.group < len(groups)
    role: Hashable = roles[signature.group] if known else signature.group
    other = _other_side(signature, groups[signature.group], trace.manifest.rank) if known else signature.peer
    content = (signature.kind, signature.bytes, signature.dtype, signature.fused, role, other, signature.routed)
    splits = signature.splits
    return content if splits is None else (*content, splits.leaving, splits.arriving)


def _role(group: Group) -> Hashable:
    """A group by its name, its size and the distances between its members.

    PyTorch's own names are numbers of groups, which differ between ranks that do the same.
    """
    name = "" if group.name.startswith("group ") else group.name
    members = np.diff(np.array(group.ranks, np.int64)).tobytes()
    return name, group.size, hashlib.blake2b(members, digest_size=8).hexdigest()


def _other_side(collective: Collective, group: Group, rank: int) -> int:
    """Whom a message goes to or comes from, counted from the rank's own place; of other collectives the root."""
    if collective.kind not in MESSAGES or rank not in group.ranks:
        return collective.peer
    return (collective.peer - group.ranks.index(rank)) % group.size


def _word(content: Hashable) -> int:
    return int.from_bytes(hashlib.blake2b(repr(content).encode(), digest_size=8).digest(), "little")


def describe_difference(one: Trace, other: Trace, entry: int) -> str:
    """Where two ranks part, in a few words; ``entry`` as `Fingerprint.first_difference` gave it."""
    ranks = f"rank {other.manifest.rank}", f"rank {one.manifest.rank}"
    if one.manifest.exit != other.manifest.exit:
        ends = [f"{name} {_ending(trace)}" for name, trace in zip(ranks, (other, one))]
        return " and ".join(ends)
    if entry == HELD:
        held = [gib(_allocated(trace, _first_forward(trace))) for trace in (other, one)]
        return f"{ranks[0]} holds {held[0]} when its first forward pass begins, {ranks[1]} {held[1]}"
    if entry == ENDS:
        return f"{ranks[0]} goes on where {ranks[1]} ends"
    scope = int(one.columns["scope"][entry])
    place = f" in {one.scopes[scope]}" if scope >= 0 else ""
    return f"{ranks[0]} differs from {ranks[1]} from entry {entry} of the latter on ({_doing(one, entry)}{place})"


def _ending(trace: Trace) -> str:
    """How far a rank got, as a clause."""
    steps = len(trace.steps())
    done = f"after {steps} step{'' if steps == 1 else 's'}"
    return f"ends {done}" if trace.manifest.exit == "ok" else f"is {trace.manifest.exit.replace('_', ' ')} {done}"


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
