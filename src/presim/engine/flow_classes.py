"""Turns the flows of priced collectives into classes and links for the loop (`presim.engine.links`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.cost.overlap import Flows, Paths
from presim.cost.price import PricedTrace
from presim.engine.state import FULL, MOST_FLOW, RATE, SCALE

Ints = NDArray[np.int64]


class FlowClasses:
    """The classes of flows of a job: transfers of one class load the same links equally."""

    def __init__(self) -> None:
        self._numbers: dict[Flows | None, int] = {None: 0}
        self._paths: dict[Paths, int] = {}
        self._links: dict[int, int] = {}  # link of the fabric -> number, in the order they are first seen

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, priced: PricedTrace) -> Ints:
        """The class of each signature of the trace's table, and last that of entries without any."""
        flows = priced.fabric.flows if priced.fabric else (None,) * len(priced.prices)
        for flow_group in flows:
            if flow_group is not None and flow_group.paths not in self._paths:
                self._paths[flow_group.paths] = len(self._paths)
                for link in flow_group.paths.links:
                    self._links.setdefault(link, len(self._links))
        return np.array(
            [*(self._numbers.setdefault(flow_group, len(self._numbers)) for flow_group in flows), 0], np.int64
        )

    def columns(self, *, enabled: bool, growing: bool = False) -> dict[str, Ints]:
        """The columns of the loop's program from ``flows_first`` to ``island_first``; empty if not ``enabled``.

        ``growing``: classes may be added later, so links keep their numbers and make one island. Else links
        that all classes load equally are merged, and links that no class joins are different islands.
        """
        paths = self._paths if enabled else {}
        owner = np.repeat(np.arange(len(paths)), [len(path.links) for path in paths])
        link = np.array([self._links[link] for path in paths for link in path.links], np.int64)
        share = np.floor(
            np.array([flows_per_Bpns for path in paths for flows_per_Bpns in path.flows_per_Bpns]) * (FULL / RATE)
        )
        share = np.clip(share, 0, FULL).astype(np.int64)
        island, starts = np.zeros(len(paths), np.int64), np.array([0, len(self._links)])
        if not growing:
            owner, link, share = _merged(owner, link, share)
            owner, link, share, island, starts = _islands(owner, link, share, len(paths))
        first = np.searchsorted(owner, np.arange(len(paths) + 1))
        path_indices = [
            self._paths[flow_group.paths] if flow_group is not None and enabled else -1 for flow_group in self._numbers
        ]
        has_flows = np.array(path_indices) >= 0
        clipped_indices = np.where(has_flows, path_indices, 0)
        bytes_ = [min(flow_group.bytes, MOST_FLOW) if flow_group is not None else 0 for flow_group in self._numbers]
        columns = {
            "flows_first": np.where(has_flows, first[clipped_indices], 0),
            "flows_end": np.where(has_flows, first[np.minimum(clipped_indices + 1, len(paths))], 0),
            "flows_bytes": np.where(has_flows, bytes_, 0),
            "flows_uncrowded": np.floor(
                SCALE / np.array([flow_group.stretch if flow_group else 1.0 for flow_group in self._numbers])
            ),
            "flows_island": np.where(has_flows, island[clipped_indices] if len(paths) else 0, -1),
            "flows_link": link,
            "link_entries": np.array([len(link)]),
            "flows_share": share,
            "island_first": starts,
        }
        return {name: np.ascontiguousarray(column, np.int64) for name, column in columns.items()}


def _merged(owner: Ints, link: Ints, share: Ints) -> tuple[Ints, Ints, Ints]:
    """Keep one of the links that every class uses equally: they are always equally full."""
    order = np.lexsort((owner, link))
    owner, link, share = owner[order], link[order], share[order]
    bounds = np.flatnonzero(np.diff(link, prepend=-1, append=-1)) if len(link) else np.zeros(1, np.int64)
    first_begin_by_use: dict[tuple[bytes, bytes], int] = {}
    is_kept = np.zeros(len(link), bool)
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
        key = (owner[begin:end].tobytes(), share[begin:end].tobytes())
        if first_begin_by_use.setdefault(key, begin) == begin:
            is_kept[begin:end] = True
    return owner[is_kept], link[is_kept], share[is_kept]


def _islands(owner: Ints, link: Ints, share: Ints, classes: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Entries by owner, with links numbered island by island; each owner's island; each island's first link."""
    numbers, link = np.unique(link, return_inverse=True)
    of_link, of_owner = np.arange(len(numbers)), np.full(classes, len(numbers))
    while True:
        np.minimum.at(of_owner, owner, of_link[link])
        joined_labels = of_link.copy()
        np.minimum.at(joined_labels, link, of_owner[owner])
        if np.array_equal(joined_labels, of_link):
            break
        of_link = joined_labels
    labels, of_link = np.unique(of_link, return_inverse=True)
    order = np.argsort(of_link, kind="stable")
    new_numbers = np.empty(len(order), np.int64)
    new_numbers[order] = np.arange(len(order))
    by_owner = np.lexsort((new_numbers[link], owner))
    starts = np.searchsorted(of_link[order], np.arange(len(labels) + 1))
    island = np.searchsorted(labels, of_owner)
    return owner[by_owner], new_numbers[link][by_owner], share[by_owner], island, starts
