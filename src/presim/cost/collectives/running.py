"""Groups that exchange over a described network at the same time as the simulated group that represents them.

The sisters of a group (its translations over the world) do the same. Those that meet through the same simulated ranks
run whenever the simulated group runs: they are one transfer, which carries the flows of all. Which meet is the rule of
`presim.trace.collate`: sisters whose members have the same representatives, and the group that a member's
representative has in place of the member's. The others are separate transfers at other times. Groups without a
simulated or represented rank are assigned to the simulated groups in turn.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from presim.trace.collective import MESSAGES, Collective
from presim.trace.grids import sisters
from presim.trace.representatives import Representatives
from presim.trace.schema import Group

Ints = NDArray[np.int64]
Groups = tuple[tuple[int, ...], ...]
_UNKNOWN = -1


def concurrent_groups(
    collective: Collective, group: Group, rank: int, world_size: int, representatives: Representatives
) -> Groups:
    """The groups that exchange while a simulated rank's collective runs; of messages each is (sender, receiver).

    ``rank``: the simulated rank. Empty where a message's other end is not known.
    """
    if collective.kind not in MESSAGES:
        return _sisters_of_a_transfer(group.ranks, world_size, representatives)
    if not 0 <= collective.peer < len(group.ranks) or group.ranks[collective.peer] == rank:
        return ()
    return _message_pairs(collective.kind, rank, collective.peer, group.ranks, world_size, representatives)


def sent_by_others(collective: Collective, group: Group, representatives: Representatives) -> bool:
    """Whether the sender of this rank's message is simulated or represented; its flows are then counted there."""
    if collective.kind != "recv" or not 0 <= collective.peer < len(group.ranks):
        return False
    return bool(representatives.of([group.ranks[collective.peer]])[0] >= 0)


@functools.lru_cache(maxsize=1024)
def _message_pairs(
    kind: str, rank: int, peer: int, group_ranks: tuple[int, ...], world_size: int, representatives: Representatives
) -> Groups:
    """(sender, receiver) of a simulated rank's messages, of those that it represents and of those that meet them.

    ``peer``: position in ``group_ranks`` of the rank that the simulated rank sends to or receives from.
    """
    step, position = group_ranks[peer] - rank, group_ranks.index(rank)
    ranks = {rank, *representatives.others.get(rank, ())}
    ranks |= {members[position] for members in _sisters_of_a_transfer(group_ranks, world_size, representatives)}
    pairs = [(sender, sender + step) for sender in ranks if 0 <= sender + step < world_size]
    if kind == "send_recv":
        return tuple(sorted({(min(pair), max(pair)) for pair in pairs}))
    if kind == "recv":
        pairs = [(receiver, sender) for sender, receiver in pairs]
    return tuple(sorted(pairs))


@functools.lru_cache(maxsize=1024)
def _sisters_of_a_transfer(ranks: tuple[int, ...], world_size: int, representatives: Representatives) -> Groups:
    """The sisters of a group that are one transfer with it."""
    sister_groups = sisters(ranks, world_size)
    if len(sister_groups) < 2:
        return tuple(sister_groups)
    table = np.array(sister_groups, np.int64)
    representative_ranks = representatives.of(table.reshape(-1)).reshape(table.shape)
    representative_ranks = np.maximum(representative_ranks, _UNKNOWN)
    is_simulated = (representative_ranks == table).any(axis=1)
    kinds = _kinds(representative_ranks)
    simulated = np.unique(kinds[is_simulated])
    if not len(simulated):
        return tuple(sister_groups)
    unsimulated = np.flatnonzero(~np.isin(kinds, simulated))
    kinds[unsimulated] = simulated[np.arange(len(unsimulated)) % len(simulated)]
    transfers = _transfers(kinds, table, representative_ranks)
    group_index = next((index for index, group in enumerate(sister_groups) if set(group) == set(ranks)), 0)
    return tuple(sister_groups[index] for index in np.flatnonzero(transfers == transfers[group_index]).tolist())


def _transfers(kinds: Ints, table: Ints, representative_ranks: Ints) -> Ints:
    """A number for each row, the same for kinds that meet.

    A row meets another one where a member's representative has the other one, at the position of the member.
    """
    owner = np.argwhere(representative_ranks == table)  # (row, position) of each simulated rank
    group_of = {int(table[row, position]): (row, position) for row, position in owner.tolist()}
    joined = {int(kind): int(kind) for kind in kinds}
    for row in np.unique(owner[:, 0]).tolist():
        for rank in set(representative_ranks[row].tolist()) & set(group_of):
            other_row, position = group_of[rank]
            if representative_ranks[row, position] == rank:
                low, high = sorted((joined[int(kinds[row])], joined[int(kinds[other_row])]))
                joined = {kind: low if label == high else label for kind, label in joined.items()}
    return np.array([joined[int(kind)] for kind in kinds], np.int64)


def _kinds(representative_ranks: Ints) -> Ints:
    """A number for each row, the same for rows of the same set of ranks."""
    ordered = np.sort(representative_ranks, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = _UNKNOWN - 1
    _, kinds = np.unique(np.sort(ordered, axis=1), axis=0, return_inverse=True)
    return kinds.astype(np.int64).reshape(-1)
