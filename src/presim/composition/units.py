"""Parameter units, as frameworks group them: one unit per repeated block, and a root unit for the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from presim.composition.graph.graph_schema import OperatorGraph, Parameter, ValueOrigin
from presim.composition.graph.parameters import elements
from presim.composition.schedule import BlockRun, Key, value_key

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


def units(graph: OperatorGraph, runs: Sequence[BlockRun] | None = None) -> list[Unit]:
    """Units in forward order, each chunk's root first; ``runs``: only units that these use."""
    by_segment: dict[int, list[Parameter]] = {}
    for parameter in graph.parameters:
        by_segment.setdefault(parameter.segment, []).append(parameter)
    if runs is None:
        names: list[Name] = [
            (segment, block) for segment in sorted(by_segment) for block in range(_count(graph, segment))
        ]
        used = {ROOT: {parameter.name for parameter in by_segment.get(-1, [])}}
    else:
        used = _root_parameters(graph, runs)
        roots = [name for name in sorted(used) if used[name]]
        blocks = {unit_of(graph, run) for run in runs if graph.segments[run.segment].name}
        names = roots + sorted(name for name in blocks if name[0] in by_segment)
    parameter_units = []
    for segment, block in names:
        block_segment = graph.segments[segment] if segment >= 0 else None
        scope = f"{block_segment.name[:-1]}{block_segment.first + block}" if block_segment else ""
        segment_parameters = by_segment.get(segment, [])
        unit_parameters = (
            segment_parameters
            if block_segment
            else [parameter for parameter in segment_parameters if parameter.name in used[segment, block]]
        )
        parameter_units.append(Unit(segment, block, scope, tuple(unit_parameters)))
    return parameter_units


def separate_experts(units: Sequence[Unit], experts: frozenset[tuple[int, str]]) -> list[Unit]:
    """Move experts' parameters (segment, name) into separate units, placed after their blocks' units."""
    separated = []
    for unit in units:
        expert_parameters = tuple(
            parameter for parameter in unit.parameters if (unit.segment, parameter.name) in experts
        )
        other_parameters = tuple(parameter for parameter in unit.parameters if parameter not in expert_parameters)
        separated.append(dataclasses.replace(unit, parameters=other_parameters) if expert_parameters else unit)
        if expert_parameters:
            separated.append(dataclasses.replace(unit, parameters=expert_parameters, experts=True))
    return separated


def _count(graph: OperatorGraph, segment: int) -> int:
    return graph.segments[segment].count if segment >= 0 else 1


def _root_parameters(graph: OperatorGraph, runs: Sequence[BlockRun]) -> dict[Name, set[str]]:
    """Names of the parameters outside blocks that each chunk uses."""
    names_by_root: dict[Name, set[str]] = {}
    visited: set[tuple[int, int]] = set()
    for run in runs:
        if (run.segment, run.chunk) in visited:
            continue
        visited.add((run.segment, run.chunk))
        names = {
            value.name
            for value in graph.segments[run.segment].values
            if value.origin is ValueOrigin.PARAMETER and not value.name.startswith(".")
        }
        names_by_root.setdefault((-1, run.chunk), set()).update(names)
    return names_by_root


def unit_of(graph: OperatorGraph, run: BlockRun) -> Name:
    """Name of the unit with a block's parameters."""
    segment = graph.segments[run.segment]
    if not segment.name:
        return -1, run.chunk
    return segment.twin if segment.backward else run.segment, run.block


def gradient_keys(graph: OperatorGraph, runs: Sequence[BlockRun]) -> dict[tuple[Name, str], Key]:
    """(unit, parameter) -> storage of its gradient, for all gradients that the runs of one micro-batch complete."""
    keys: dict[tuple[Name, str], Key] = {}
    for run in runs:
        for name, index in graph.segments[run.segment].gradients.items():
            key = value_key(graph, run, index)
            if key is not None:
                keys[unit_of(graph, run), name] = key
    return keys
