"""The layer that each scope and operator of a trace names, and their names without its number."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]
_NUMBER = re.compile(r"(?<=\.)\d+(?=[.)]|$)")  # of an entry of a list of modules


@dataclasses.dataclass(frozen=True)
class Names:
    """A table of names, each taken apart: the number of its layer, -1 for none, and the rest."""

    layers: Ints  # by name
    rests: Ints  # by name: equal for names that differ in the layer alone
    templates: tuple[str, ...]  # by rest, with {} for the number

    def renamed(self, table: Sequence[str], indices: Ints, layers: Ints) -> tuple[tuple[str, ...], Ints]:
        """The table with further names, and the index of each name of ``indices`` for another layer."""
        names, index_by_name = list(table), {name: index for index, name in enumerate(table)}
        pairs, inverse = np.unique(np.stack([self.rests[indices], layers]), axis=1, return_inverse=True)
        renamed = []
        for template_number, layer in pairs.T.tolist():
            name = self.templates[template_number].replace("{}", str(layer))
            if name not in index_by_name:
                index_by_name[name] = len(names)
                names.append(name)
            renamed.append(index_by_name[name])
        return tuple(names), np.array(renamed, np.int64)[inverse.reshape(-1)]


def layer_list(trace: Trace) -> tuple[str, list[int]]:
    """The path of the list of modules in which most device work is, and the numbers of its layers; empty: none."""
    counts: collections.Counter[str] = collections.Counter()
    numbers: dict[str, set[int]] = collections.defaultdict(set)
    work = trace.columns["scope"][trace.mask(Kind.WORK)].astype(np.int64)
    for scope, count in zip(*np.unique(work[work >= 0], return_counts=True)):
        if match := _NUMBER.search(trace.scopes[scope]):
            path = _path(trace.scopes[scope][: match.start()])
            counts[path] += int(count)
            numbers[path].add(int(match.group()))
    path = max(counts, key=lambda name: counts[name] if len(numbers[name]) > 1 else 0, default="")
    return path, sorted(numbers[path])


def _path(text: str) -> str:
    """The last word of a path, which operators name as well: ``layers.`` of ``Model.model.layers.``."""
    return text.rstrip(".").rpartition(".")[2] + "."


def names_of(table: Sequence[str], path: str) -> Names:
    """The names of a table of scopes or operators; ``path``: of the layers."""
    templates: dict[str, int] = {}
    layers, rests = [], []
    number = re.compile(rf"(?<![\w]){re.escape(path)}(\d+)(?=[.)]|$)")
    for name in table:
        match = number.search(name)
        layers.append(int(match.group(1)) if match else -1)
        template = name[: match.start(1)] + "{}" + name[match.end(1) :] if match else name
        rests.append(templates.setdefault(template, len(templates)))
    # The last entry answers for the index -1.
    return Names(np.array([*layers, -1], np.int64), np.array([*rests, -1], np.int64), tuple(templates))
