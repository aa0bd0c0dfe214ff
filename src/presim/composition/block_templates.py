"""Turn scheduled blocks into templates: determine storage lifetimes and emit the entries."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.composition import communication
from presim.composition.entry_templates import Rows, Tables, Template
from presim.composition.graph.graph_schema import Node, OperatorGraph, Segment, ValueOrigin
from presim.composition.graph.sizes import read
from presim.composition.graph.works import READS_BACK, Sizes, works
from presim.composition.host_gaps import HostTimes
from presim.composition.names import NOTHING, Ints, Names
from presim.composition.schedule import BlockRun, Do, Key, Schedule, value_key
from presim.trace.schema import Category, Phase

_DIES, _SAVED = 1, 2  # flags: how an action uses a storage
_ROUND = 512  # bytes: what PyTorch's caching allocator rounds sizes up to (kMinBlockSize)


@dataclasses.dataclass(frozen=True, eq=False)
class Placed:
    """Templates in execution order, with the names of their slots."""

    templates: Sequence[Template]
    prefixes: Sequence[str]  # per template: module path that its relative scopes are appended to
    names: Ints  # names of the slots of all templates, concatenated
    begins: Sequence[int] = ()  # entries at which the forward passes of micro-batches begin
    # templates whose micro-batch numbers count over all micro-batches, including omitted ones
    of_all: Sequence[int] = ()
    # entries where a forward pass begins, where the backward pass beside it does, and where both have ended
    side_by_side: Sequence[tuple[int, int, int]] = ()

    def cut(self, num_templates: int) -> tuple[Placed, Placed]:
        """Split into the first ``num_templates`` templates and the rest."""
        slots = sum(len(template.slots) for template in self.templates[:num_templates])
        return (
            Placed(
                self.templates[:num_templates],
                self.prefixes[:num_templates],
                self.names[:slots],
                self.begins,
                self.of_all,
                self.side_by_side,
            ),
            Placed(self.templates[num_templates:], self.prefixes[num_templates:], self.names[slots:]),
        )


def rounded(size: int) -> int:
    """Bytes that the allocator allocates for a size."""
    return max(_ROUND, -(-size // _ROUND) * _ROUND)


class Blocks:
    """Makes templates of blocks for one batch size and sequence length; equal uses share a template."""

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
        """``whole_again``: recomputation runs the whole block, not only what backward needs, as in Megatron."""
        self._graph, self._tables, self._hosts, self._groups = graph, tables, hosts, groups
        self._size = (batch, sequence)
        sizes = self._sizes = Sizes(graph, batch, sequence)
        self._works = [[works(node, sizes) for node in segment.nodes] for segment in graph.segments]
        self._bytes = [
            [rounded(read(value.bytes)(batch, sequence)) for value in segment.values] for segment in graph.segments
        ]
        self._used = [_first_and_last_use(segment) for segment in graph.segments]
        self._needed = {
            index: len(segment.nodes) if whole_again else needed_again(graph, index)
            for index, segment in enumerate(graph.segments)
        }
        self._templates: dict[object, Template] = {}
        self._backward = [segment.backward for segment in graph.segments]
        self._kept = [_gradients_of(segment) for segment in graph.segments]

    def exact_bytes(self, segment: int, index: int) -> int:
        """Bytes of a value before the allocator rounds them up."""
        return read(self._graph.segments[segment].values[index].bytes)(*self._size)

    def bytes_of(self, segment: int, index: int) -> int:
        """Bytes that the allocator allocates for a value."""
        return self._bytes[segment][index]

    def place(self, schedule: Schedule, names: Names, persistent_keys: frozenset[Key] = frozenset()) -> Placed:
        """Place all actions of a schedule; blocks do not free the storages in ``persistent_keys``."""
        names_by_action = [self._value_names(action, names) for action in schedule]
        counts = np.array([len(value_names) for value_names in names_by_action], np.int64)
        numbers = np.concatenate(names_by_action) if names_by_action else np.zeros(0, np.int64)
        micros = np.array([action.micro if isinstance(action, BlockRun) else 0 for action in schedule], np.int64)
        numbers = np.where(numbers >= 0, numbers + np.repeat(micros, counts), numbers)
        action_ends = np.cumsum(counts)
        uses = self._uses(schedule, numbers, counts, names, persistent_keys)
        templates, prefixes, slot_positions = list[Template](), list[str](), list[Ints]()
        for action, start, end in zip(schedule, (action_ends - counts).tolist(), action_ends.tolist()):
            if isinstance(action, Do):
                template, prefix = action.template, action.scope
                slot_positions.append(np.arange(start, end))
            else:
                template, prefix = self._placed(action, uses[start:end])
                slot_positions.append(np.where(template.values < 0, -1, template.values + start))
            templates.append(template)
            prefixes.append(prefix)
        places = np.concatenate(slot_positions) if slot_positions else np.zeros(0, np.int64)
        meant = np.append(numbers, -1)[places]
        private_slots = np.flatnonzero(places < 0)  # storages that only this block uses
        meant[private_slots] = names.new(len(private_slots))
        of_all = [index for index, action in enumerate(schedule) if isinstance(action, Do) and action.of_all]
        begins, pairs = self._begins(schedule, templates), _side_by_side(schedule, templates)
        return Placed(templates, prefixes, meant, begins, of_all, pairs)

    def _begins(self, schedule: Schedule, templates: Sequence[Template]) -> list[int]:
        """Entry indices at which this rank's first chunk starts a micro-batch's forward pass."""
        entry_by_micro: dict[int, int] = {}
        entry = 0
        for action, template in zip(schedule, templates):
            if isinstance(action, BlockRun) and not (
                action.recomputed or action.chunk or self._backward[action.segment]
            ):
                entry_by_micro.setdefault(action.micro, entry)
            entry += len(template)
        return list(entry_by_micro.values())

    def _value_names(self, action: BlockRun | Do, names: Names) -> Ints:
        """The name of each value or slot; for blocks, in the first micro-batch."""
        if isinstance(action, Do):
            return names.of(action.keys)
        block_key = (action.segment, action.block, action.recomputed, action.chunk)
        value_names = names.of_runs.get(block_key)
        if value_names is None:  # cache the names of values: looking them up was half of the time to compose
            first = BlockRun(action.segment, action.block, 0, action.recomputed, action.chunk)
            values = range(len(self._graph.segments[action.segment].values))
            value_names = names.of_runs[block_key] = names.of(
                [value_key(self._graph, first, index) for index in values]
            )
        return value_names

    def _uses(
        self, schedule: Schedule, numbers: Ints, counts: Ints, names: Names, persistent_keys: frozenset[Key]
    ) -> NDArray[np.uint8]:
        """For each name of each action: whether it is freed there, and whether it is saved for the backward pass."""
        position = np.repeat(np.arange(len(schedule)), counts)
        is_backward = np.array(
            [isinstance(action, Do) or action.recomputed or self._backward[action.segment] for action in schedule],
            np.bool_,
        )
        name_index = names.dense(numbers)
        last = np.full(names.size + 1, -1, np.int64)  # the last slot is for entries without a name
        last[name_index] = position
        at_last = last[name_index] == position
        is_named = numbers != NOTHING
        stays = np.zeros(names.size + 1, np.bool_)
        stays[names.dense(names.of(list(persistent_keys)))] = True
        never_freed = [
            np.zeros(count, np.bool_) if isinstance(action, Do) else self._kept[action.segment]
            for action, count in zip(schedule, counts.tolist())
        ]
        is_dying = is_named & at_last & ~stays[name_index] & ~np.concatenate([*never_freed, np.zeros(0, np.bool_)])
        is_saved = is_named & ~at_last & is_backward[last[name_index]]
        uses: NDArray[np.uint8] = (is_dying * _DIES + is_saved * _SAVED).astype(np.uint8)
        return uses

    def _placed(self, run: BlockRun, uses: NDArray[np.uint8]) -> tuple[Template, str]:
        segment = self._graph.segments[run.segment]
        name = (run.segment, run.recomputed, uses.tobytes())
        if name not in self._templates:
            dying, saved = (frozenset(np.flatnonzero(uses & bit).tolist()) for bit in (_DIES, _SAVED))
            self._templates[name] = self._template(run, segment, dying, saved)
        return self._templates[name], f"{segment.name[:-1]}{segment.first + run.block}" if segment.name else ""

    def _template(self, run: BlockRun, segment: Segment, dying: frozenset[int], saved: frozenset[int]) -> Template:
        phase = Phase.BACKWARD if segment.backward else Phase.RECOMPUTE if run.recomputed else Phase.FORWARD
        rows = Rows(self._tables, self._hosts, phase)
        sizes, (first, last) = self._bytes[run.segment], self._used[run.segment]
        gradients = set(segment.gradients.values())
        end = self._needed[run.segment] if run.recomputed and not segment.backward else len(segment.nodes)
        for node_index, node in enumerate(segment.nodes[:end]):
            for index in first.get(node_index, ()):
                rows.alloc(
                    str(index),
                    sizes[index],
                    _category(index, gradients, saved, segment.backward or run.recomputed),
                    operator=node.operator,
                    scope=node.scope,
                )
            if node.operator.startswith("comm::"):
                communication.emit(rows, node, self._sizes, self._groups)
            for operator, signature in self._works[run.segment][node_index]:
                rows.work(operator, signature, scope=node.scope)
            if node.operator in READS_BACK:
                rows.stream_sync()
            for index in last.get(node_index, ()):
                if index in dying:
                    rows.free(str(index), sizes[index], scope=node.scope)
        if end < len(segment.nodes):  # free values whose later uses do not run
            created_values = {index for node_index in range(end) for index in first.get(node_index, ())}
            done = {index for node_index in range(end) for index in last.get(node_index, ())}
            own_values = {index for index, value in enumerate(segment.values) if value.origin is ValueOrigin.OWN}
            for index in sorted(dying - done):
                if index in created_values or index not in own_values:
                    rows.free(str(index), sizes[index])
        return rows.template()


def _side_by_side(schedule: Schedule, templates: Sequence[Template]) -> list[tuple[int, int, int]]:
    """The entries of each pair of passes that run side by side: begin, middle, end."""
    firsts = np.cumsum([0, *map(len, templates)]).tolist()
    marked = [first for action, first in zip(schedule, firsts) if isinstance(action, Do) and action.side_by_side]
    return list(zip(marked[::3], marked[1::3], marked[2::3]))


def _gradients_of(segment: Segment) -> NDArray[np.bool_]:
    """Mask of values that are gradients of parameters; the code after the block owns them."""
    mask = np.zeros(len(segment.values), np.bool_)
    mask[list(segment.gradients.values())] = True
    return mask


def _category(index: int, gradients: set[int], saved: frozenset[int], backward: bool) -> Category:
    if index in gradients:
        return Category.GRADIENT
    return Category.ACTIVATION if index in saved and not backward else Category.TEMPORARY


def _first_and_last_use(segment: Segment) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Two maps: node -> own values it creates first, and node -> values it uses last."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for node_index, node in enumerate(segment.nodes):
        for operand in (*node.inputs, *node.outputs):
            first.setdefault(operand.value, node_index)
            last[operand.value] = node_index
    created_by_node: dict[int, list[int]] = {}
    used: dict[int, list[int]] = {}
    for index, node_index in first.items():
        if segment.values[index].origin is ValueOrigin.OWN:
            created_by_node.setdefault(node_index, []).append(index)
    for index, node_index in last.items():
        used.setdefault(node_index, []).append(index)
    return created_by_node, used


def needed_again(graph: OperatorGraph, index: int) -> int:
    """Number of nodes of a forward segment that recomputation runs: up to the last value that backward needs."""
    segment = graph.segments[index]
    needed_values = {
        value.index
        for other in graph.segments
        if other.twin == index
        for value in other.values
        if value.origin is ValueOrigin.SEGMENT and value.segment == index
    }
    makers = [node_index for node_index, node in enumerate(segment.nodes) if _makes(node, needed_values)]
    return max(makers, default=-1) + 1 if segment.count > 1 or needed_values else len(segment.nodes)


def _makes(node: Node, needed_values: set[int]) -> bool:
    return not node.view and any(operand.value in needed_values for operand in node.outputs)
