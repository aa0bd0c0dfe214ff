"""Which groups exchange over a described network together with a simulated one, because it stands for them.

The sisters of a group (its translations over the world) do the same. Those that meet through the same simulated ranks
run whenever the simulated group runs: they are one transfer. The others are transfers of their own, at times of their
own. Groups that no simulated rank is in or stands for are dealt out to the simulated ones in turn.
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


def exchanging(
    collective: Collective, group: Group, rank: int, world_size: int, representatives: Representatives
) -> Groups:
    """The groups that exchange while a simulated rank's collective runs; of messages each is (sender, receiver).

    ``rank``: the simulated rank. Empty where a message's other end is not known.
    """
    if collective.kind not in MESSAGES:
        return _alike(group.ranks, world_size, representatives)
    if not 0 <= collective.peer < len(group.ranks) or group.ranks[collective.peer] == rank:
        return ()
    return _messages(collective.kind, rank, group.ranks[collective.peer] - rank, world_size, representatives)


def sent_by_others(collective: Collective, group: Group, representatives: Representatives) -> bool:
    """Whether a simulated rank sends what this one receives, so that its flows are counted there."""
    if collective.kind != "recv" or not 0 <= collective.peer < len(group.ranks):
        return False
    return bool(representatives.of([group.ranks[collective.peer]])[0] >= 0)


@functools.lru_cache(maxsize=1024)
def _messages(kind: str, rank: int, step: int, world_size: int, representatives: Representatives) -> Groups:
    """What all ranks that a simulated rank stands for send, or receive, at the same time."""
    known = [rank, *representatives.others.get(rank, ())]
    pairs = [(one, one + step) for one in known if 0 <= one + step < world_size]
    if kind == "send_recv":
        return tuple(sorted({(min(pair), max(pair)) for pair in pairs}))
    if kind == "recv":
        pairs = [(other, own) for own, other in pairs]
    return tuple(sorted(pairs))


@functools.lru_cache(maxsize=1024)
def _alike(ranks: tuple[int, ...], world_size: int, representatives: Representatives) -> Groups:
    """The sisters of a group that meet through the same simulated ranks as it does."""
    found = sisters(ranks, world_size)
    if len(found) < 2:
        return tuple(found)
    table = np.array(found, np.int64)
    chosen = representatives.of(table.reshape(-1)).reshape(table.shape)
    chosen = np.maximum(chosen, _UNKNOWN)
    is_simulated = (chosen == table).any(axis=1)
    kinds = _kinds(chosen)
    own = next((at for at, each in enumerate(found) if set(each) == set(ranks)), 0)
    simulated = np.unique(kinds[is_simulated])
    if not len(simulated):
        return tuple(found)
    left = np.flatnonzero(~np.isin(kinds, simulated))
    kinds[left] = simulated[np.arange(len(left)) % len(simulated)]
    return tuple(found[at] for at in np.flatnonzero(kinds == kinds[own]).tolist())


def _kinds(chosen: Ints) -> Ints:
    """A number for each row, the same for rows of the same set of ranks."""
    ordered = np.sort(chosen, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = _UNKNOWN - 1
    _, kinds = np.unique(np.sort(ordered, axis=1), axis=0, return_inverse=True)
    return kinds.astype(np.int64).reshape(-1)
