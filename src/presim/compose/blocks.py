"""From runs of blocks to templates: which storages live on, which die where, and the entries that this makes."""

from __future__ import annotations

import dataclasses

from presim.compose import communication
from presim.compose.hosts import HostTimes
from presim.compose.rows import Rows, Tables, Template
from presim.compose.schedule import Do, Key, Run, Schedule, value_key
from presim.graph.schema import Node, OperatorGraph, Origin, Segment
from presim.graph.sizes import read
from presim.graph.works import READS_BACK, Sizes, works
from presim.trace.schema import Category, Phase

_ROUND = 512  # bytes: what PyTorch's caching allocator rounds sizes up to (kMinBlockSize)


@dataclasses.dataclass(frozen=True)
class Placed:
    """A template and what its slots mean."""

    template: Template
    keys: tuple[Key, ...]
    scope: str  # module path that relative scopes are appended to


def rounded(size: int) -> int:
    """Bytes that the allocator hands out."""
    return max(_ROUND, -(-size // _ROUND) * _ROUND)


class Blocks:
    """Makes templates of blocks for one batch and sequence; equal uses share one."""

    def __init__(
        self,
        graph: OperatorGraph,
        batch: int,
        sequence: int,
        tables: Tables,
        hosts: HostTimes,
        groups: dict[str, int],
        *,
        whole_again: bool = False,
    ) -> None:
        """``whole_again``: a recomputation runs all of a block, not only what backward needs (Megatron's is so)."""
        self._graph, self._tables, self._hosts, self._groups = graph, tables, hosts, groups
        self._size = (batch, sequence)
        sizes = self._sizes = Sizes(graph, batch, sequence)
        self._works = [[works(node, sizes) for node in segment.nodes] for segment in graph.segments]
        self._bytes = [
            [rounded(read(value.bytes)(batch, sequence)) for value in segment.values] for segment in graph.segments
        ]
        self._used = [_first_and_last_use(segment) for segment in graph.segments]
        self._needed = {
            index: len(segment.nodes) if whole_again else _needed_again(graph, index)
            for index, segment in enumerate(graph.segments)
        }
        self._templates: dict[object, Template] = {}
        self._within: dict[object, tuple[Key | None, ...]] = {}

    def exact_bytes(self, segment: int, index: int) -> int:
        """Bytes of a value, before the allocator rounds them up."""
        return read(self._graph.segments[segment].values[index].bytes)(*self._size)

    def bytes_of(self, segment: int, index: int) -> int:
        """Bytes of a value."""
        return self._bytes[segment][index]

    def place(self, schedule: Schedule, held: frozenset[Key] = frozenset()) -> list[Placed]:
        """All actions with their entries; blocks do not free what is held."""
        graph = self._graph
        keys = [self._keys(action) if isinstance(action, Run) else action.keys for action in schedule]
        last: dict[Key, int] = {}
        backward: dict[Key, bool] = {}  # whether it is used in the backward pass at last
        for position, action in enumerate(schedule):
            is_backward = isinstance(action, Do) or graph.segments[action.segment].backward or action.again
            for key in keys[position]:
                if key is not None:
                    last[key], backward[key] = position, is_backward
        placed = []
        for position, action in enumerate(schedule):
            if isinstance(action, Do):
                placed.append(Placed(action.template, action.keys, action.scope))
            else:
                placed.append(self._placed(action, keys[position], position, last, backward, held))
        return placed

    def _keys(self, run: Run) -> tuple[Key | None, ...]:
        """What each value means; what it means within a micro-batch is looked up once (half of composing's time)."""
        name = (run.segment, run.block, run.again, run.chunk)
        known = self._within.get(name)
        if known is None:
            first = Run(run.segment, run.block, 0, run.again, run.chunk)
            count = len(self._graph.segments[run.segment].values)
            known = self._within[name] = tuple(value_key(self._graph, first, index) for index in range(count))
        if not run.micro:
            return known
        return tuple(key and (run.micro, *key[1:]) for key in known)

    def _placed(
        self,
        run: Run,
        keys: tuple[Key | None, ...],
        position: int,
        last: dict[Key, int],
        backward: dict[Key, bool],
        held: frozenset[Key],
    ) -> Placed:
        segment = self._graph.segments[run.segment]
        kept = set(segment.gradients.values())
        dying = frozenset(
            index
            for index, key in enumerate(keys)
            if key is not None and last[key] == position and index not in kept and key not in held
        )
        saved = frozenset(
            index for index, key in enumerate(keys) if key is not None and last[key] != position and backward[key]
        )
        name = (run.segment, run.again, dying, saved)
        if name not in self._templates:
            self._templates[name] = self._template(run, segment, dying, saved)
        template = self._templates[name]
        prefix = f"{segment.name[:-1]}{segment.first + run.block}" if segment.name else ""
        here = (run.micro, run.segment, run.block, run.again, run.chunk)
        named = tuple((keys[int(slot)] or ()) if slot.isdigit() else (*here, slot) for slot in template.slots)
        return Placed(template, named, prefix)

    def _template(self, run: Run, segment: Segment, dying: frozenset[int], saved: frozenset[int]) -> Template:
        phase = Phase.BACKWARD if segment.backward else Phase.RECOMPUTE if run.again else Phase.FORWARD
        rows = Rows(self._tables, self._hosts, phase)
        sizes, (first, last) = self._bytes[run.segment], self._used[run.segment]
        gradients = set(segment.gradients.values())
        end = self._needed[run.segment] if run.again and not segment.backward else len(segment.nodes)
        for place, node in enumerate(segment.nodes[:end]):
            for index in first.get(place, ()):
                rows.alloc(
                    str(index),
                    sizes[index],
                    _category(index, gradients, saved, segment.backward or run.again),
                    operator=node.operator,
                    scope=node.scope,
                )
            if node.operator.startswith("comm::"):
                communication.emit(rows, node, self._sizes.elements(communication.whole(node)), self._groups)
            for operator, signature in self._works[run.segment][place]:
                rows.work(operator, signature, scope=node.scope)
            if node.operator in READS_BACK:
                rows.stream_sync()
            for index in last.get(place, ()):
                if index in dying:
                    rows.free(str(index), sizes[index], scope=node.scope)
        if end < len(segment.nodes):  # what else would have been made, or freed, later on
            made = {index for place in range(end) for index in first.get(place, ())}
            done = {index for place in range(end) for index in last.get(place, ())}
            own = {index for index, value in enumerate(segment.values) if value.origin is Origin.OWN}
            for index in sorted(dying - done):
                if index in made or index not in own:
                    rows.free(str(index), sizes[index])
        return rows.template()


def _category(index: int, gradients: set[int], saved: frozenset[int], backward: bool) -> Category:
    if index in gradients:
        return Category.GRADIENT
    return Category.ACTIVATION if index in saved and not backward else Category.TEMPORARY


def _first_and_last_use(segment: Segment) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Node -> own values that it makes, node -> values it is the last of the segment to use."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, node in enumerate(segment.nodes):
        for operand in (*node.inputs, *node.outputs):
            first.setdefault(operand.value, place)
            last[operand.value] = place
    made: dict[int, list[int]] = {}
    used: dict[int, list[int]] = {}
    for index, place in first.items():
        if segment.values[index].origin is Origin.OWN:
            made.setdefault(place, []).append(index)
    for index, place in last.items():
        used.setdefault(place, []).append(index)
    return made, used


def _needed_again(graph: OperatorGraph, index: int) -> int:
    """How many nodes of a forward segment a recomputation runs: up to the last value that backward needs."""
    segment = graph.segments[index]
    wanted = {
        value.index
        for other in graph.segments
        if other.twin == index
        for value in other.values
        if value.origin is Origin.SEGMENT and value.segment == index
    }
    makers = [place for place, node in enumerate(segment.nodes) if _makes(node, wanted)]
    return max(makers, default=-1) + 1 if segment.count > 1 or wanted else len(segment.nodes)


def _makes(node: Node, wanted: set[int]) -> bool:
    return not node.view and any(operand.value in wanted for operand in node.outputs)
