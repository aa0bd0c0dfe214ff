"""Parameter units, as frameworks group them: one unit per repeated block, and a root unit for the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from presim.composition.graph.parameters import elements
from presim.composition.graph.schema import OperatorGraph, Origin, Parameter
from presim.composition.schedule import Key, Run, value_key

# (repeated forward segment, block); (-1, chunk) for parameters outside blocks. A third number marks the block's
# experts.
Name: TypeAlias = tuple[int, ...]
ROOT: Name = (-1, 0)


@dataclasses.dataclass(frozen=True)
class Unit:
    """Parameters that are gathered, reduced or updated together."""

    segment: int  # repeated forward segment; -1: root
    block: int
    scope: str
    parameters: tuple[Parameter, ...]
    experts: bool = False  # the block's experts under expert parallelism

    @property
    def home(self) -> Name:
        """The block."""
        return self.segment, self.block

    @property
    def name(self) -> Name:
        """Unique name."""
        return (*self.home, 1) if self.experts else self.home

    @property
    def kind(self) -> Name:
        """Key that is equal for units with equal parameters."""
        return (self.segment, self.block if self.segment < 0 else 0, int(self.experts))

    @property
    def elements(self) -> int:
        """Elements in all parameters."""
        return sum(elements(parameter) for parameter in self.parameters)


def units(graph: OperatorGraph, runs: Sequence[Run] | None = None) -> list[Unit]:
    """Units in forward order, each chunk's root first; ``runs``: only units that these use."""
    by_segment: dict[int, list[Parameter]] = {}
    for parameter in graph.parameters:
        by_segment.setdefault(parameter.segment, []).append(parameter)
    if runs is None:
        names: list[Name] = [
            (segment, block) for segment in sorted(by_segment) for block in range(_count(graph, segment))
        ]
        used = {ROOT: {one.name for one in by_segment.get(-1, [])}}
    else:
        used = _root_parameters(graph, runs)
        roots = [name for name in sorted(used) if used[name]]
        blocks = {unit_of(graph, run) for run in runs if graph.segments[run.segment].name}
        names = roots + sorted(name for name in blocks if name[0] in by_segment)
    found = []
    for segment, block in names:
        whole = graph.segments[segment] if segment >= 0 else None
        scope = f"{whole.name[:-1]}{whole.first + block}" if whole else ""
        own = by_segment.get(segment, [])
        kept = own if whole else [one for one in own if one.name in used[segment, block]]
        found.append(Unit(segment, block, scope, tuple(kept)))
    return found


def separate_experts(units: Sequence[Unit], experts: frozenset[tuple[int, str]]) -> list[Unit]:
    """Move experts' parameters (segment, name) into separate units, placed after their blocks' units."""
    found = []
    for unit in units:
        own = tuple(one for one in unit.parameters if (unit.segment, one.name) in experts)
        rest = tuple(one for one in unit.parameters if one not in own)
        found.append(dataclasses.replace(unit, parameters=rest) if own else unit)
        if own:
            found.append(dataclasses.replace(unit, parameters=own, experts=True))
    return found


def _count(graph: OperatorGraph, segment: int) -> int:
    return graph.segments[segment].count if segment >= 0 else 1


def _root_parameters(graph: OperatorGraph, runs: Sequence[Run]) -> dict[Name, set[str]]:
    """Names of the parameters outside blocks that each chunk uses."""
    found: dict[Name, set[str]] = {}
    visited: set[tuple[int, int]] = set()
    for run in runs:
        if (run.segment, run.chunk) in visited:
            continue
        visited.add((run.segment, run.chunk))
        names = {
            value.name
            for value in graph.segments[run.segment].values
            if value.origin is Origin.PARAMETER and not value.name.startswith(".")
        }
        found.setdefault((-1, run.chunk), set()).update(names)
    return found


def unit_of(graph: OperatorGraph, run: Run) -> Name:
    """Name of the unit with a block's parameters."""
    segment = graph.segments[run.segment]
    if not segment.name:
        return -1, run.chunk
    return segment.twin if segment.backward else run.segment, run.block


def gradient_keys(graph: OperatorGraph, runs: Sequence[Run]) -> dict[tuple[Name, str], Key]:
    """(unit, parameter) -> storage of its gradient, for all gradients that the runs of one micro-batch complete."""
    found: dict[tuple[Name, str], Key] = {}
    for run in runs:
        for name, index in graph.segments[run.segment].gradients.items():
            key = value_key(graph, run, index)
            if key is not None:
                found[unit_of(graph, run), name] = key
    return found
