"""A captured job at another degree of data parallelism, without capturing again.

Every rank of the larger job does what a captured one does, where data parallelism only reduces gradients: the sizes of
all-reduces and broadcasts do not depend on how many take part. Where parameters or optimizer states are sharded over
the ranks that are to become more or fewer, shards change their sizes, and the job has to be captured at that size.

The world is a grid (`presim.trace.grids`): the data-parallel digit of each rank gets another range, all others stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from presim.errors import InputError
from presim.trace.collective import MESSAGES, Collective
from presim.trace.grids import axes_of
from presim.trace.schema import Group, Phase, Trace
from presim.trace.signatures import Signature

_FORWARD, _BACKWARD = (Phase.FORWARD, Phase.RECOMPUTE), (Phase.BACKWARD, Phase.OPTIMIZER)
_TOLD_BYTES = 1 << 20
_SIZE_STAYS = ("all_reduce", "broadcast", "reduce", "barrier")


@dataclasses.dataclass(frozen=True)
class Digit:
    """The data-parallel digit of a rank: ``rank // stride % size``."""

    stride: int
    size: int
    group: str  # a group that varies only this digit

    def of(self, rank: int) -> int:
        """The digit of a rank."""
        return rank // self.stride % self.size

    def moved(self, rank: int, size: int) -> int:
        """The rank with the same digits where this one has ``size`` values.

        >>> Digit(2, 4, "dp").moved(9, 8)
        17
        """
        low, high = rank % self.stride, rank // (self.stride * self.size)
        return high * self.stride * size + self.of(rank) * self.stride + low


def data_parallel(traces: Sequence[Trace]) -> Digit:
    """The digit along which ranks only share gradients: its group communicates in no forward pass.

    Raises:
        InputError: there is none, or there are several.
    """
    world = traces[0].manifest.world_size
    found: dict[tuple[int, int], str] = {}
    for trace in traces:
        forward, backward = (_called(trace, *phases) for phases in (_FORWARD, _BACKWARD))
        others = [axis for index in forward for axis in axes_of(trace.manifest.groups[index].ranks) or ()]
        for index in sorted(backward - forward):
            group = trace.manifest.groups[index]
            axes = axes_of(group.ranks)
            if axes is not None and len(axes) == 1 and not any(_overlap(axes[0], axis) for axis in others):
                found.setdefault(axes[0], group.name)
    narrow = {axis: name for axis, name in found.items() if not any(_covers(axis, other) for other in found)}
    if len(narrow) != 1:
        named = ", ".join(f"{name!r} ({size} ranks, {stride} apart)" for (stride, size), name in narrow.items())
        raise InputError(
            f"the job of {world} ranks has {'several groups that share' if narrow else 'no group that shares'} "
            f"gradients only{': ' + named if narrow else ''}, so it is not known which ranks to multiply; capture it "
            "with --world-size, at the size you want"
        )
    ((stride, size), name) = next(iter(narrow.items()))
    return Digit(stride, size, name)


def with_shards(traces: Sequence[Trace]) -> Group | None:
    """The group whose ranks hold shards of parameters, where no other one shares gradients only; None: there is none.

    Its parameters are gathered in forward passes and its gradients reduce-scattered.
    """
    try:
        data_parallel(traces)
    except InputError:
        for trace in traces:
            told = [one if isinstance(one, Collective) else None for one in trace.signatures]
            kinds = {(one.group, one.kind) for one in told if one is not None}
            forward = _called(trace, *_FORWARD)
            for index, group in enumerate(trace.manifest.groups):
                if index in forward and {(index, "all_gather"), (index, "reduce_scatter")} <= kinds:
                    return group
    return None


def _called(trace: Trace, *phases: Phase) -> set[int]:
    """Groups of several ranks that communicate in these phases; forward passes broadcast buffers of replicas."""
    groups = trace.manifest.groups
    told = [
        one.group if isinstance(one, Collective) and not (one.kind == "broadcast" and Phase.FORWARD in phases) else -1
        for one in trace.signatures
    ]
    group = np.array([*told, -1], np.int64)[trace.columns["signature"].astype(np.int64)]
    found = set(group[np.isin(trace.columns["phase"], [int(phase) for phase in phases])].tolist())
    return {index for index in found if 0 <= index < len(groups) and groups[index].size > 1}


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two digits have values in common: (stride, size) reaches from the stride to their product."""
    return one[0] < other[0] * other[1] and other[0] < one[0] * one[1]


def _covers(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and one[0] <= other[0] and one[0] * one[1] >= other[0] * other[1]


def at_world_size(
    traces: Sequence[Trace], stands_for: Mapping[int, Sequence[int]], world_size: int
) -> tuple[list[Trace], dict[int, list[int]], list[str]]:
    """`rescaled` to a number of ranks, with a sentence for the reader.

    Raises:
        InputError: see `rescaled`, or the number is no multiple of the ranks that hold the model once.
    """
    digit = data_parallel(traces)
    old = traces[0].manifest.world_size
    once = old // digit.size
    if world_size % once:
        raise InputError(
            f"the model takes {once} ranks and {world_size} is no multiple of it; choose --nodes and --gpus-per-node "
            f"that make a multiple of {once}, or capture it again"
        )
    size = world_size // once
    found, spoken = rescaled(traces, stands_for, size)
    said = (
        f"Captured with {digit.size} data-parallel ranks ({digit.group!r}) and re-scaled to {size}: each does what a "
        "captured one does, with the same batch."
    )
    return found, spoken, [said]


def rescaled(
    traces: Sequence[Trace], stands_for: Mapping[int, Sequence[int]], size: int
) -> tuple[list[Trace], dict[int, list[int]]]:
    """The traces of the job with ``size`` data-parallel ranks where it had others, and who stands for whom.

    Raises:
        InputError: the capture does not say what another size would do; the sentence names the capture that does.
    """
    digit = data_parallel(traces)
    world = traces[0].manifest.world_size // digit.size * size
    for trace in traces:
        _check_sizes(trace, digit, world)
    others = {trace.manifest.rank: stands_for.get(trace.manifest.rank, ()) for trace in traces}
    voices = {rank: voice for voice, ranks in others.items() for rank in (voice, *ranks)}
    lost = [rank for rank in others if digit.of(rank) >= size]
    if lost:
        raise InputError(
            f"rank {lost[0]}, which was captured, has no place in {size} data-parallel ranks; {_again(world)}"
        )
    return [_trace(trace, digit, size, world) for trace in traces], _speakers(voices, digit, size, world)


def _speakers(voices: Mapping[int, int], digit: Digit, size: int, world: int) -> dict[int, list[int]]:
    """Data-parallel ranks beyond those of the capture do as its last one does, which does as the middle one."""
    spoken: dict[int, list[int]] = {}
    for rank in range(world):
        low, place, high = rank % digit.stride, rank // digit.stride % size, rank // (digit.stride * size)

        def before(place: int, low: int = low, high: int = high) -> int | None:
            return voices.get((high * digit.size + place) * digit.stride + low)

        known = min(place, digit.size - 1)
        voice = before(known)
        if place >= digit.size and digit.size > 2 and voice != before(digit.size // 2):
            raise InputError(
                f"the last of {digit.size} data-parallel ranks does not do as the middle one, so it is not known what "
                f"{size} would; {_again(world)}"
            )
        if voice is None:
            continue
        captured = digit.moved(voice, size)
        if captured != rank:
            spoken.setdefault(captured, []).append(rank)
    return spoken


def _check_sizes(trace: Trace, digit: Digit, world: int) -> None:
    """Only what does not depend on the number of ranks may cross the digit."""
    groups = trace.manifest.groups
    for index, signature in enumerate(trace.signatures):
        if not isinstance(signature, Collective) or not 0 <= signature.group < len(groups):
            continue
        group = groups[signature.group]
        if len(group.ranks) != group.size or list(group.ranks) != sorted(group.ranks):
            raise InputError(f"the members of the group {group.name!r} are not known in order; {_again(world)}")
        crosses = len({digit.of(rank) for rank in group.ranks}) > 1
        if crosses and signature.kind not in (*_SIZE_STAYS, *MESSAGES) and index not in _of_set_up(trace):
            raise InputError(
                f"the {signature.kind} over the {group.size} ranks of {group.name!r} holds a shard of each, and "
                f"the trace does not say how another number of shards is rounded; {_again(world)}"
            )
        if crosses and signature.kind in MESSAGES:
            raise InputError(f"data-parallel ranks send messages to each other over {group.name!r}; {_again(world)}")


def _of_set_up(trace: Trace) -> set[int]:
    """Small all-gathers before the first forward pass: each rank tells as much, however many there are.

    DistributedDataParallel compares the shapes of all ranks' parameters so.
    """
    forward = np.flatnonzero(trace.columns["phase"] == Phase.FORWARD)
    begin = int(forward[0]) if len(forward) else len(trace)
    later = set(trace.columns["signature"][begin:].tolist())
    return {
        index
        for index, one in enumerate(trace.signatures)
        if index not in later and isinstance(one, Collective) and one.kind == "all_gather" and one.bytes <= _TOLD_BYTES
    }


def _again(world: int) -> str:
    return f"capture it with --world-size {world}"


def _trace(trace: Trace, digit: Digit, size: int, world: int) -> Trace:
    manifest = trace.manifest
    groups = tuple(_grown(group, digit, size) for group in manifest.groups)
    told = _of_set_up(trace)
    signatures = tuple(
        _same_ends(one, manifest.groups, groups, digit, size, of_set_up=index in told)
        for index, one in enumerate(trace.signatures)
    )
    changed = msgspec.structs.replace(manifest, world_size=world, rank=digit.moved(manifest.rank, size), groups=groups)
    return dataclasses.replace(trace, manifest=changed, signatures=signatures)


def _grown(group: Group, digit: Digit, size: int) -> Group:
    """The group with all values of the digit, where it had all; else with the ones it had."""
    if not group.ranks:
        return group
    places = {digit.of(rank) for rank in group.ranks}
    if len(places) < digit.size or digit.size == 1:
        moved = [digit.moved(rank, size) for rank in group.ranks]
    else:
        origins = [digit.moved(rank, size) for rank in group.ranks if not digit.of(rank)]
        moved = sorted(origin + place * digit.stride for origin in origins for place in range(size))
    return Group(group.name, tuple(moved), len(moved), group.ordinal)


def _same_ends(
    signature: Signature,
    before: Sequence[Group],
    after: Sequence[Group],
    digit: Digit,
    size: int,
    *,
    of_set_up: bool,
) -> Signature:
    """Roots and the other sides of messages, at their new places; of set-up what more ranks tell."""
    if not isinstance(signature, Collective) or not 0 <= signature.group < len(before):
        return signature
    if of_set_up:
        told = signature.bytes // before[signature.group].size * after[signature.group].size
        return msgspec.structs.replace(signature, bytes=told)
    if signature.peer < 0:
        return signature
    ranks = before[signature.group].ranks
    if signature.peer >= len(ranks):
        return signature
    if digit.of(ranks[signature.peer]) >= size:
        raise InputError(
            f"rank {ranks[signature.peer]}, a root of {signature.kind}, has no place in {size} data-parallel ranks; "
            "choose more of them"
        )
    peer = after[signature.group].ranks.index(digit.moved(ranks[signature.peer], size))
    return signature if peer == signature.peer else msgspec.structs.replace(signature, peer=peer)
