"""Parameters as frameworks group them: each repeated block is a unit, and what lies outside of blocks is the root."""

from __future__ import annotations

import dataclasses
import math

from presim.graph.schedule import Key, Run, value_key
from presim.graph.schema import OperatorGraph, Parameter
from presim.trace.dtypes import dtype_bytes

ROOT = (-1, 0)


@dataclasses.dataclass(frozen=True)
class Unit:
    """Parameters that are gathered, reduced or updated together."""

    segment: int  # the repeated forward segment; -1: the root
    block: int
    scope: str
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> tuple[int, int]:
        """What tells it from others."""
        return self.segment, self.block

    @property
    def elements(self) -> int:
        """Numbers in all parameters."""
        return sum(elements(parameter) for parameter in self.parameters)


def elements(parameter: Parameter) -> int:
    """Numbers in a parameter."""
    return math.prod(parameter.shape)


def size(parameter: Parameter) -> int:
    """Bytes of a parameter as the model computes with it."""
    return elements(parameter) * dtype_bytes(parameter.dtype)


def units(graph: OperatorGraph) -> list[Unit]:
    """All units in the order of the forward pass; the root first, where it has parameters."""
    by_segment: dict[int, list[Parameter]] = {}
    for parameter in graph.parameters:
        by_segment.setdefault(parameter.segment, []).append(parameter)
    found = []
    for segment, parameters in sorted(by_segment.items()):
        whole = graph.segments[segment] if segment >= 0 else None
        for block in range(whole.count if whole else 1):
            scope = f"{whole.name[:-1]}{whole.first + block}" if whole else ""
            found.append(Unit(segment, block, scope, tuple(parameters)))
    return found


def unit_of(graph: OperatorGraph, run: Run) -> tuple[int, int]:
    """The name of the unit whose parameters a block uses."""
    segment = graph.segments[run.segment]
    if not segment.name:
        return ROOT
    return segment.twin if segment.backward else run.segment, run.block


def gradient_keys(graph: OperatorGraph, runs: list[Run]) -> dict[tuple[tuple[int, int], str], Key]:
    """(unit, parameter) -> the storage of its gradient, for all that the runs of one micro-batch complete."""
    found: dict[tuple[tuple[int, int], str], Key] = {}
    for run in runs:
        for name, index in graph.segments[run.segment].gradients.items():
            key = value_key(graph, run, index)
            if key is not None:
                found[unit_of(graph, run), name] = key
    return found
