"""Turns the flows of priced collectives into classes and links for the loop (`presim.engine.links`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.cost.overlap import Flows, Paths
from presim.cost.price import PricedTrace
from presim.engine.state import FULL, MOST_FLOW, RATE

Ints = NDArray[np.int64]


class FlowClasses:
    """The classes of flows of a job: transfers of one class put as much on the same links."""

    def __init__(self) -> None:
        self._numbers: dict[Flows | None, int] = {None: 0}
        self._paths: dict[Paths, int] = {}
        self._links: dict[int, int] = {}  # link of the fabric -> number, in the order they are first seen

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, priced: PricedTrace) -> Ints:
        """The class of each signature of the trace's table, and last that of entries without any."""
        flows = priced.fabric.flows if priced.fabric else (None,) * len(priced.prices)
        for one in flows:
            if one is not None and one.paths not in self._paths:
                self._paths[one.paths] = len(self._paths)
                for link in one.paths.links:
                    self._links.setdefault(link, len(self._links))
        return np.array([*(self._numbers.setdefault(one, len(self._numbers)) for one in flows), 0], np.int64)

    def columns(self, *, wanted: bool, growing: bool = False) -> dict[str, Ints]:
        """The columns of the loop's program from ``flows_first`` to ``island_first``; empty where not wanted.

        ``growing``: classes may be added later, so links keep their numbers and make one island. Else links on which
        all classes put the same are one, and those that nothing joins are different islands.
        """
        paths = self._paths if wanted else {}
        owner = np.repeat(np.arange(len(paths)), [len(one.links) for one in paths])
        link = np.array([self._links[each] for one in paths for each in one.links], np.int64)
        share = np.floor(np.array([each for one in paths for each in one.flows_per_Bpns]) * (FULL / RATE))
        share = np.clip(share, 0, FULL).astype(np.int64)
        island, starts = np.zeros(len(paths), np.int64), np.array([0, len(self._links)])
        if not growing:
            owner, link, share = _merged(owner, link, share)
            owner, link, share, island, starts = _islands(owner, link, share, len(paths))
        first = np.searchsorted(owner, np.arange(len(paths) + 1))
        places = [self._paths[one.paths] if one is not None and wanted else -1 for one in self._numbers]
        known = np.array(places) >= 0
        at = np.where(known, places, 0)
        bytes_ = [min(one.bytes, MOST_FLOW) if one is not None else 0 for one in self._numbers]
        found = {
            "flows_first": np.where(known, first[at], 0),
            "flows_end": np.where(known, first[np.minimum(at + 1, len(paths))], 0),
            "flows_bytes": np.where(known, bytes_, 0),
            "flows_island": np.where(known, island[at] if len(paths) else 0, -1),
            "flows_link": link,
            "flows_share": share,
            "island_first": starts,
        }
        return {name: np.ascontiguousarray(column, np.int64) for name, column in found.items()}


def _merged(owner: Ints, link: Ints, share: Ints) -> tuple[Ints, Ints, Ints]:
    """One link of all that every class uses alike: the others are never fuller."""
    order = np.lexsort((owner, link))
    owner, link, share = owner[order], link[order], share[order]
    bounds = np.flatnonzero(np.diff(link, prepend=-1, append=-1)) if len(link) else np.zeros(1, np.int64)
    kept: dict[tuple[bytes, bytes], int] = {}
    stays = np.zeros(len(link), bool)
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
        key = (owner[begin:end].tobytes(), share[begin:end].tobytes())
        if kept.setdefault(key, begin) == begin:
            stays[begin:end] = True
    return owner[stays], link[stays], share[stays]


def _islands(owner: Ints, link: Ints, share: Ints, classes: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Entries by owner, with links numbered island by island; each owner's island; each island's first link."""
    numbers, link = np.unique(link, return_inverse=True)
    of_link, of_owner = np.arange(len(numbers)), np.full(classes, len(numbers))
    while True:
        np.minimum.at(of_owner, owner, of_link[link])
        joined = of_link.copy()
        np.minimum.at(joined, link, of_owner[owner])
        if np.array_equal(joined, of_link):
            break
        of_link = joined
    labels, of_link = np.unique(of_link, return_inverse=True)
    order = np.argsort(of_link, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    by_owner = np.lexsort((place[link], owner))
    starts = np.searchsorted(of_link[order], np.arange(len(labels) + 1))
    island = np.searchsorted(labels, of_owner)
    return owner[by_owner], place[link][by_owner], share[by_owner], island, starts
