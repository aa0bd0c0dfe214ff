"""Rescales a captured job to another degree of data parallelism, without a new capture.

If data parallelism only reduces gradients, every rank of the rescaled job does the same work as a captured rank: sizes
of all-reduces and broadcasts do not depend on the number of ranks. If parameters or optimizer states are sharded over
data-parallel ranks, the sizes of shards change, and the job must be captured at the new size.

The world is a grid (`presim.trace.grids`): only the range of each rank's data-parallel digit changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

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

    def rank_at_size(self, rank: int, size: int) -> int:
        """The rank with the same digits where this one has ``size`` values.

        >>> Digit(2, 4, "dp").rank_at_size(9, 8)
        17
        """
        low, high = rank % self.stride, rank // (self.stride * self.size)
        return high * self.stride * size + self.of(rank) * self.stride + low


def data_parallel(traces: Sequence[Trace]) -> Digit:
    """The data-parallel digit: ranks that differ in it communicate in backward passes only.

    Raises:
        InputError: there is none, or there are several.
    """
    world = traces[0].manifest.world_size
    group_names: dict[tuple[int, int], str] = {}
    for trace in traces:
        forward, backward = (_communicating_groups(trace, *phases) for phases in (_FORWARD, _BACKWARD))
        forward_axes = [axis for index in forward for axis in axes_of(trace.manifest.groups[index].ranks) or ()]
        for index in sorted(backward - forward):
            group = trace.manifest.groups[index]
            axes = axes_of(group.ranks)
            if axes is not None and len(axes) == 1 and not any(_overlap(axes[0], axis) for axis in forward_axes):
                group_names.setdefault(axes[0], group.name)
    narrow = narrowest(group_names)
    if len(narrow) != 1:
        named = ", ".join(f"{name!r} ({size} ranks, {stride} apart)" for (stride, size), name in narrow.items())
        raise InputError(
            f"the job of {world} ranks has {'several groups that share' if narrow else 'no group that shares'} "
            f"gradients only{': ' + named if narrow else ''}, so it is not known which ranks to multiply; capture it "
            "with --world-size, at the size you want"
        )
    ((stride, size), name) = next(iter(narrow.items()))
    return Digit(stride, size, name)


def narrowest(names: Mapping[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    """Digits, as (stride, size), that reach over no other of them, with the names of their groups."""
    return {axis: name for axis, name in names.items() if not any(_covers(axis, other) for other in names)}


def sharded_group(traces: Sequence[Trace]) -> Group | None:
    """The group whose ranks hold shards of parameters if no group shares gradients only; else None.

    Its parameters are gathered in forward passes and its gradients reduce-scattered.
    """
    try:
        data_parallel(traces)
    except InputError:
        for trace in traces:
            collectives = [signature if isinstance(signature, Collective) else None for signature in trace.signatures]
            kinds = {(collective.group, collective.kind) for collective in collectives if collective is not None}
            forward = _communicating_groups(trace, *_FORWARD)
            for index, group in enumerate(trace.manifest.groups):
                if index in forward and {(index, "all_gather"), (index, "reduce_scatter")} <= kinds:
                    return group
    return None


def _communicating_groups(trace: Trace, *phases: Phase) -> set[int]:
    """Groups of several ranks that communicate in these phases; forward passes broadcast buffers of replicas."""
    groups = trace.manifest.groups
    group_by_signature = [
        signature.group
        if isinstance(signature, Collective) and not (signature.kind == "broadcast" and Phase.FORWARD in phases)
        else -1
        for signature in trace.signatures
    ]
    group = np.array([*group_by_signature, -1], np.int64)[trace.columns["signature"].astype(np.int64)]
    group_indices = set(group[np.isin(trace.columns["phase"], [int(phase) for phase in phases])].tolist())
    return {index for index in group_indices if 0 <= index < len(groups) and groups[index].size > 1}


def _overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether two digits have values in common: (stride, size) reaches from the stride to their product."""
    return first[0] < second[0] * second[1] and second[0] < first[0] * first[1]


def _covers(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    return outer != inner and outer[0] <= inner[0] and outer[0] * outer[1] >= inner[0] * inner[1]


def at_world_size(
    traces: Sequence[Trace], stands_for: Mapping[int, Sequence[int]], world_size: int
) -> tuple[list[Trace], dict[int, list[int]], list[str]]:
    """`rescaled` to a number of ranks, with a sentence for the reader.

    Raises:
        InputError: see `rescaled`, or the number is no multiple of the ranks that hold the model once.
    """
    digit = data_parallel(traces)
    old = traces[0].manifest.world_size
    model_ranks = old // digit.size
    if world_size % model_ranks:
        raise InputError(
            f"the model takes {model_ranks} ranks and {world_size} is no multiple of it; choose --nodes and "
            f"--gpus-per-node that make a multiple of {model_ranks}, or capture it again"
        )
    size = world_size // model_ranks
    rescaled_traces, represented_ranks = rescaled(traces, stands_for, size)
    sentence = (
        f"Captured with {digit.size} data-parallel ranks ({digit.group!r}) and re-scaled to {size}: each does what a "
        "captured one does, with the same batch."
    )
    return rescaled_traces, represented_ranks, [sentence]


def rescaled(
    traces: Sequence[Trace], stands_for: Mapping[int, Sequence[int]], size: int
) -> tuple[list[Trace], dict[int, list[int]]]:
    """The traces of the job with ``size`` data-parallel ranks, and the ranks that each represents.

    Raises:
        InputError: the capture does not say what another size would do; the sentence names the capture that does.
    """
    digit = data_parallel(traces)
    world = traces[0].manifest.world_size // digit.size * size
    for trace in traces:
        _check_sizes(trace, digit, world)
    represented_ranks = ranks_at_digit(traces, stands_for, digit, size)
    return [at_digit(trace, digit, size, _set_up_signatures(trace)) for trace in traces], represented_ranks


def ranks_at_digit(
    traces: Sequence[Trace], stands_for: Mapping[int, Sequence[int]], digit: Digit, size: int
) -> dict[int, list[int]]:
    """The ranks that each captured rank represents where a digit has ``size`` values.

    Raises:
        InputError: a captured rank has no place, or the last value of the digit does not do as others.
    """
    world = traces[0].manifest.world_size // digit.size * size
    represented_by = {trace.manifest.rank: stands_for.get(trace.manifest.rank, ()) for trace in traces}
    representative_by_rank = {
        rank: representative for representative, ranks in represented_by.items() for rank in (representative, *ranks)
    }
    lost_ranks = [rank for rank in represented_by if digit.of(rank) >= size]
    if lost_ranks:
        raise InputError(
            f"rank {lost_ranks[0]}, which was captured, has no place in {size} data-parallel ranks; "
            f"{_capture_advice(world)}"
        )
    return _represented_ranks(representative_by_rank, digit, size, world)


def _represented_ranks(
    representative_by_rank: Mapping[int, int], digit: Digit, size: int, world: int
) -> dict[int, list[int]]:
    """Captured rank -> the other ranks it represents: added data-parallel ranks do what the last captured one does."""
    represented: dict[int, list[int]] = {}
    for rank in range(world):
        low, digit_value, high = rank % digit.stride, rank // digit.stride % size, rank // (digit.stride * size)

        def representative_of(digit_value: int, low: int = low, high: int = high) -> int | None:
            return representative_by_rank.get((high * digit.size + digit_value) * digit.stride + low)

        captured_value = min(digit_value, digit.size - 1)
        representative = representative_of(captured_value)
        if digit_value >= digit.size and digit.size > 2 and representative != representative_of(digit.size // 2):
            raise InputError(
                f"the last of {digit.size} data-parallel ranks does not do as the middle one, so it is not known what "
                f"{size} would; {_capture_advice(world)}"
            )
        if representative is None:
            continue
        captured = digit.rank_at_size(representative, size)
        if captured != rank:
            represented.setdefault(captured, []).append(rank)
    return represented


def _check_sizes(trace: Trace, digit: Digit, world: int) -> None:
    """Raise InputError if a collective along the digit has a size that depends on the number of ranks."""
    groups = trace.manifest.groups
    for index, signature in enumerate(trace.signatures):
        if not isinstance(signature, Collective) or not 0 <= signature.group < len(groups):
            continue
        group = groups[signature.group]
        if len(group.ranks) != group.size or list(group.ranks) != sorted(group.ranks):
            raise InputError(
                f"the members of the group {group.name!r} are not known in order; {_capture_advice(world)}"
            )
        crosses = len({digit.of(rank) for rank in group.ranks}) > 1
        if crosses and signature.kind not in (*_SIZE_STAYS, *MESSAGES) and index not in _set_up_signatures(trace):
            raise InputError(
                f"the {signature.kind} over the {group.size} ranks of {group.name!r} holds a shard of each, and "
                "the trace does not say how another number of shards is rounded; "
                f"{_shard_advice(trace.manifest.world_size, world)}"
            )
        if crosses and signature.kind in MESSAGES:
            raise InputError(
                f"data-parallel ranks send messages to each other over {group.name!r}; {_capture_advice(world)}"
            )


def _set_up_signatures(trace: Trace) -> set[int]:
    """Small all-gathers before the first forward pass; the bytes of each rank do not depend on the number of ranks.

    DistributedDataParallel compares the shapes of all ranks' parameters this way.
    """
    forward = np.flatnonzero(trace.columns["phase"] == Phase.FORWARD)
    begin = int(forward[0]) if len(forward) else len(trace)
    later = set(trace.columns["signature"][begin:].tolist())
    return {
        index
        for index, signature in enumerate(trace.signatures)
        if index not in later
        and isinstance(signature, Collective)
        and signature.kind == "all_gather"
        and signature.bytes <= _TOLD_BYTES
    }


def _capture_advice(world: int) -> str:
    return f"capture it with --world-size {world}"


def _shard_advice(captured_world: int, world: int) -> str:
    """What to do where sizes depend on the number of ranks: two captures show how, `presim.composition.replan`."""
    second = 2 * captured_world
    if second >= world:
        return _capture_advice(world)
    return (
        f"{_capture_advice(world)}, or with --world-size {second} --save DIR, and use `presim replan JOB --wider DIR "
        f"--world-size {world}`"
    )


def at_digit(trace: Trace, digit: Digit, size: int, set_up_signatures: Collection[int] = ()) -> Trace:
    """The trace where a digit has ``size`` values: its rank, groups, roots and peers.

    ``set_up_signatures``: all-gathers whose bytes grow with their group; those of others stay.
    """
    manifest = trace.manifest
    world = manifest.world_size // digit.size * size
    groups = tuple(_rescaled_group(group, digit, size) for group in manifest.groups)
    signatures = tuple(
        _rescaled_signature(signature, manifest.groups, groups, digit, size, is_set_up=index in set_up_signatures)
        for index, signature in enumerate(trace.signatures)
    )
    new_manifest = msgspec.structs.replace(
        manifest, world_size=world, rank=digit.rank_at_size(manifest.rank, size), groups=groups
    )
    return dataclasses.replace(trace, manifest=new_manifest, signatures=signatures)


def _rescaled_group(group: Group, digit: Digit, size: int) -> Group:
    """The group with all ``size`` values of the digit if it had all values before, else with the same ones."""
    if not group.ranks:
        return group
    digit_values = {digit.of(rank) for rank in group.ranks}
    if len(digit_values) < digit.size or digit.size == 1:
        new_ranks = [digit.rank_at_size(rank, size) for rank in group.ranks]
    else:
        origins = [digit.rank_at_size(rank, size) for rank in group.ranks if not digit.of(rank)]
        new_ranks = sorted(origin + digit_value * digit.stride for origin in origins for digit_value in range(size))
    return Group(group.name, tuple(new_ranks), len(new_ranks), group.ordinal)


def _rescaled_signature(
    signature: Signature,
    old_groups: Sequence[Group],
    new_groups: Sequence[Group],
    digit: Digit,
    size: int,
    *,
    is_set_up: bool,
) -> Signature:
    """The signature with the new positions of roots and peers, and the new bytes of set-up all-gathers."""
    if not isinstance(signature, Collective) or not 0 <= signature.group < len(old_groups):
        return signature
    if is_set_up:
        set_up_bytes = signature.bytes // old_groups[signature.group].size * new_groups[signature.group].size
        return msgspec.structs.replace(signature, bytes=set_up_bytes)
    if signature.peer < 0:
        return signature
    ranks = old_groups[signature.group].ranks
    if signature.peer >= len(ranks):
        return signature
    if digit.of(ranks[signature.peer]) >= size:
        raise InputError(
            f"rank {ranks[signature.peer]}, a root of {signature.kind}, has no place in {size} data-parallel ranks; "
            "choose more of them"
        )
    peer = new_groups[signature.group].ranks.index(digit.rank_at_size(ranks[signature.peer], size))
    return signature if peer == signature.peer else msgspec.structs.replace(signature, peer=peer)
