"""Compare two ranks call by call over all captured steps.

Two ranks are the same if all of this agrees:

* the collectives on every communicator in their order, from the start of the script: kind, message, data type, root,
  and the communicator's name, size, distances between members, and number among those of the same members;
* sends and receives: the peer's place in the communicator relative to the rank's own;
* from the first forward pass on, all device work with its stream (by order of first use), events, synchronisations,
  allocation sizes and ends of steps;
* memory that is allocated when the first forward pass begins;
* how the script ended.

Host time, addresses, module names and a rank's own place are ignored. So is other device work before the first forward
pass: one rank may read, seed or log there while others do not.

Two amounts have a tolerance. A block above 1 MiB may be up to 1 MiB larger than requested: PyTorch's caching allocator
hands out a free block whole unless more than that would remain, and which blocks are free depends on the host's speed.
The bytes moved by an optimizer's kernel may differ by 1 %: Megatron's first tensor parallel rank includes the
parameters that all of them hold in the gradient norm.

The host's waits for an event within an operator are ignored: the allocator looks for a free block there, and whether it
has to wait depends on the host's speed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.trace.collective import MESSAGES
from presim.trace.schema import COMPILING, STOPPED_WITH_ANOTHER, Group, Kind, Phase, Trace
from presim.trace.signatures import Collective, Optimizer, Signature, family
from presim.units import gib

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
_COMPARED_KINDS = (
    *(Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.EVENT_SYNC, Kind.STREAM_SYNC),
    *(Kind.DEVICE_SYNC, Kind.ALLOC, Kind.STEP),
)
_MAX_UNSPLIT = 1 << 20  # bytes: kSmallSize in PyTorch's CUDACachingAllocator, below which a remainder is not split off
_SETUP_TOLERANCE = 0.005  # share of the memory allocated during set-up: sum of such remainders
_OPTIMIZER_TOLERANCE = 0.01  # share of an optimizer kernel's bytes; small kernels: 1 MiB, a third of a microsecond
MEMORY_DIFFERS, LENGTH_DIFFERS = (
    -1,
    -2,
)  # the difference is the memory before the first forward pass; one trace is longer than the other
_ON_STREAM = (Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.STREAM_SYNC)


@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """The comparable content of a rank's captured steps; one array element per compared entry."""

    words: Words  # hash of what the entry does; the first element: how the script ended
    amounts: Ints  # bytes of a large allocation or optimizer kernel, else 0; first: memory held before the steps
    slack: Ints  # allowed difference from another rank's amount
    entries: NDArray[np.int64]  # index in the trace

    @property
    def digest(self) -> bytes:
        """Equal for ranks that do the same, apart from amounts."""
        return hashlib.blake2b(self.words.tobytes(), digest_size=16).digest()

    def first_difference(self, other: Fingerprint) -> int | None:
        """Our first entry that differs from the other's, as an index in the trace; None if the ranks are the same.

        `MEMORY_DIFFERS` or `LENGTH_DIFFERS` if the difference is not an entry.
        """
        common = min(len(self.words), len(other.words))
        deviations = np.abs(self.amounts[:common] - other.amounts[:common])
        allowed = np.maximum(self.slack[:common], other.slack[:common])
        different = np.flatnonzero((self.words[:common] != other.words[:common]) | (deviations > allowed))
        if len(different):
            return int(self.entries[different[0]]) if different[0] else MEMORY_DIFFERS
        if len(self.words) == len(other.words):
            return None
        return int(self.entries[common]) if common < len(self.words) else LENGTH_DIFFERS


def fingerprint(trace: Trace) -> Fingerprint:
    """The fingerprint of a whole trace."""
    begin = _first_forward(trace)
    kinds = trace.columns["kind"]
    entries = np.flatnonzero(np.isin(kinds, np.array([int(kind) for kind in _COMPARED_KINDS], np.uint8)))
    entries = entries[((entries >= begin) | (kinds[entries] == Kind.COLLECTIVE)) & ~_compiling(trace)[entries]]
    by_allocator = (kinds[entries] == Kind.EVENT_SYNC) & (trace.columns["operator"][entries] >= 0)
    entries = entries[~by_allocator]
    roles = [_role(group) for group in trace.manifest.groups]
    table = np.array([*(_hash(_content(signature, trace, roles)) for signature in trace.signatures), 0], np.uint64)
    kind = kinds[entries].astype(np.uint64)
    signature = table[trace.columns["signature"][entries].astype(np.int64)]
    on_stream = np.isin(kind, np.array([int(compared_kind) for compared_kind in _ON_STREAM], np.uint64))
    stream = np.zeros(len(entries), np.uint64)
    stream[on_stream] = _number_by_appearance(trace.columns["stream"][entries][on_stream])
    sizes = np.where(kind == Kind.ALLOC, trace.columns["value"][entries], 0).astype(np.int64)
    is_large = sizes > _MAX_UNSPLIT
    value = np.where(is_large, 1, sizes).astype(np.uint64)  # no small block has one byte
    words = (signature * np.uint64(31) + kind) * np.uint64(0x9E3779B97F4A7C15) ^ stream ^ (value << np.uint64(8))
    optimizer_bytes = _optimizer_bytes(trace)[trace.columns["signature"][entries].astype(np.int64)]
    allocated_bytes = _allocated(trace, begin)
    noise = np.concatenate([[_SETUP_TOLERANCE * allocated_bytes], _OPTIMIZER_TOLERANCE * optimizer_bytes])
    return Fingerprint(
        np.concatenate([np.array([_hash(_ending(trace))], np.uint64), words]),
        np.concatenate([[allocated_bytes], np.where(is_large, sizes, optimizer_bytes)]).astype(np.int64),
        _MAX_UNSPLIT + noise.astype(np.int64),
        np.concatenate([[begin], entries]).astype(np.int64),
    )


def _optimizer_bytes(trace: Trace) -> Ints:
    """Bytes moved by optimizers, by signature; a final zero serves entries without a signature."""
    bytes_by_signature = [
        signature.bytes_read + signature.bytes_written if isinstance(signature, Optimizer) else 0
        for signature in trace.signatures
    ]
    return np.array([*bytes_by_signature, 0], np.int64)


def _first_forward(trace: Trace) -> int:
    """Index of the first entry of a forward pass, or 0. Forward passes that a compiler traces do not count."""
    forward = np.flatnonzero((trace.columns["phase"] == Phase.FORWARD) & ~_compiling(trace))
    return int(forward[0]) if len(forward) else 0


def _compiling(trace: Trace) -> NDArray[np.bool_]:
    scope = trace.scopes.index(COMPILING) if COMPILING in trace.scopes else len(trace.scopes)
    is_compiling: NDArray[np.bool_] = trace.columns["scope"] == scope
    return is_compiling


def _allocated(trace: Trace, end: int) -> int:
    """Bytes allocated and not freed before an entry."""
    kind, value = trace.columns["kind"][:end], trace.columns["value"][:end].astype(np.int64)
    return int(value[kind == Kind.ALLOC].sum() - value[kind == Kind.FREE].sum())


def _number_by_appearance(values: NDArray[np.generic]) -> Words:
    """Number the values in the order of first appearance, because stream numbers differ between devices."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    appearance_order = np.empty(len(first), np.uint64)
    appearance_order[np.argsort(first)] = np.arange(len(first))
    result: Words = appearance_order[inverse.reshape(-1)]
    return result


def _content(signature: Signature, trace: Trace, roles: Sequence[Hashable]) -> Hashable:
    if isinstance(signature, Optimizer):
        return signature.operator, signature.dtype
    if not isinstance(signature, Collective):
        return msgspec.json.encode(signature)
    groups = trace.manifest.groups
    has_group = 0 <= signature.group < len(groups)
    role: Hashable = roles[signature.group] if has_group else signature.group
    other = _relative_peer(signature, groups[signature.group], trace.manifest.rank) if has_group else signature.peer
    content = (signature.kind, signature.bytes, signature.dtype, signature.fused, role, other, signature.routed)
    splits = signature.splits
    return content if splits is None else (*content, splits.leaving, splits.arriving)


def _role(group: Group) -> Hashable:
    """A group as its name, size, distances between members, and number among groups of the same members.

    PyTorch's default names are group numbers, which differ between ranks that do the same. Groups of the same members
    are different communicators, told apart by the order of their creation.
    """
    name = "" if group.name.startswith("group ") else group.name
    members = np.diff(np.array(group.ranks, np.int64)).tobytes()
    return name, group.size, hashlib.blake2b(members, digest_size=8).hexdigest(), group.ordinal


def _relative_peer(collective: Collective, group: Group, rank: int) -> int:
    """A message's peer relative to the rank's own place; for other collectives the root."""
    if collective.kind not in MESSAGES or rank not in group.ranks:
        return collective.peer
    return (collective.peer - group.ranks.index(rank)) % group.size


def _hash(content: Hashable) -> int:
    return int.from_bytes(hashlib.blake2b(repr(content).encode(), digest_size=8).digest(), "little")


def describe_difference(reference: Trace, other: Trace, entry: int) -> str:
    """Describe where two ranks differ; ``entry`` as returned by `Fingerprint.first_difference`."""
    ranks = f"rank {other.manifest.rank}", f"rank {reference.manifest.rank}"
    if _ending(reference) != _ending(other):
        endings = [f"{name} {_describe_end(trace)}" for name, trace in zip(ranks, (other, reference))]
        return " and ".join(endings)
    if entry == MEMORY_DIFFERS:
        allocations = [gib(_allocated(trace, _first_forward(trace))) for trace in (other, reference)]
        return f"{ranks[0]} holds {allocations[0]} when its first forward pass begins, {ranks[1]} {allocations[1]}"
    if entry == LENGTH_DIFFERS:
        return f"{ranks[0]} continues after {ranks[1]} has ended"
    scope = int(reference.columns["scope"][entry])
    location = f" in {reference.scopes[scope]}" if scope >= 0 else ""
    description = f"{_describe_entry(reference, entry)}{location}"
    return f"{ranks[0]} differs from {ranks[1]} at entry {entry} of {ranks[1]} ({description})"


def _ending(trace: Trace) -> str:
    """How the script ended; a rank that was killed by itself is not as those that presim then stopped."""
    is_stopped = trace.manifest.error == STOPPED_WITH_ANOTHER
    return "stopped with another" if is_stopped else trace.manifest.exit.replace("_", " ")


def _describe_end(trace: Trace) -> str:
    """How the script ended, as a clause."""
    steps = len(trace.steps())
    done = f"after {steps} step{'' if steps == 1 else 's'}"
    return f"ends {done}" if trace.manifest.exit == "ok" else f"is {_ending(trace)} {done}"


def _describe_entry(trace: Trace, entry: int) -> str:
    """A short description of an entry."""
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
