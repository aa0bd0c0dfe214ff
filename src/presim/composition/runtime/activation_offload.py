"""Activations in host memory: copied down after a block's forward pass, back up before its backward pass.

As Transformer Engine's and Megatron's CPU offloading of layers: copies run on streams of their own, one for each
direction. A block's storages are freed after the run that follows its forward pass, once their copies are done. They
are fetched one block ahead in the backward pass. Storages below 1,024 bytes stay, as in torchtune's
``OffloadActivations`` (``min_offload_size``); so do those that pipeline messages use.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import FROM_HOST, TO_HOST, Rows, Tables, Template
from presim.composition.graph.graph_schema import OperatorGraph, ValueOrigin
from presim.composition.host_gaps import HostTimes
from presim.composition.schedule import Action, BlockRun, Do, Key, value_key
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Copy

_LEAST = 1024  # bytes of a storage


@dataclasses.dataclass(frozen=True)
class Offloaded:
    """The schedule with copies, and what they move."""

    schedule: tuple[Action, ...]
    bytes: int = 0  # of all storages that are copied, each way
    pinned_bytes: int = 0  # of host memory at the peak; PyTorch rounds pinned buffers up to powers of two


@dataclasses.dataclass(frozen=True)
class _Group:
    """Storages that leave together, and where in the schedule."""

    run: BlockRun  # the last run of the forward pass that uses them
    keys: tuple[Key, ...]
    leaves: int  # place of that run
    freed: int  # place of the run after it
    fetched: int  # place that their copies back are begun before
    used: int  # place of the first run of the backward pass that uses them


def apply(
    schedule: Sequence[Action],
    graph: OperatorGraph,
    blocks: int,
    unfreed_keys: Collection[Key],
    size_of: Callable[[int, int], int],
    tables: Tables,
    hosts: HostTimes,
) -> Offloaded:
    """The schedule in which the first ``blocks`` of each micro-batch's forward pass keep activations on the host.

    ``unfreed_keys``: storages that no block frees; they stay. ``size_of``: exact bytes of a value of a segment.
    """
    groups = _groups(schedule, graph, blocks, unfreed_keys, size_of)
    copies = _Copies(size_of, tables, hosts)
    before: dict[int, list[Action]] = defaultdict(list)
    after: dict[int, list[Action]] = defaultdict(list)
    for group in groups:
        after[group.leaves].append(copies.down(group))
        after[group.freed].append(copies.free(group))
        before[group.fetched].append(copies.up(group))
        before[group.used].append(copies.wait(group))
    actions = [
        scheduled_action
        for action_index, action in enumerate(schedule)
        for scheduled_action in (*before[action_index], action, *after[action_index])
    ]
    total = sum(copies.sizes(group)[index] for group in groups for index in range(len(group.keys)))
    return Offloaded(tuple(actions), total, _peak(groups, copies))


def _groups(
    schedule: Sequence[Action],
    graph: OperatorGraph,
    blocks: int,
    unfreed_keys: Collection[Key],
    size_of: Callable[[int, int], int],
) -> list[_Group]:
    runs = [(action_index, action) for action_index, action in enumerate(schedule) if isinstance(action, BlockRun)]
    created_keys, last_forward_order, used = set[Key](), dict[Key, int](), dict[Key, int]()
    number: dict[int, int] = {}  # of a forward run of a repeated block: how many came before in its micro-batch
    counts: dict[int, int] = defaultdict(int)
    storages = _Storages(graph)
    for order, (_, run) in enumerate(runs):
        segment = graph.segments[run.segment]
        is_forward = not (segment.backward or run.recomputed)
        if is_forward and segment.name:
            number[order] = counts[run.micro]
            counts[run.micro] += 1
        for key, is_created in storages.of(run):
            if is_forward:
                last_forward_order[key] = order
                if is_created:
                    created_keys.add(key)
            else:
                used.setdefault(key, order)
    leaving: dict[int, list[Key]] = defaultdict(list)
    for key in last_forward_order:
        is_chosen = (
            key in created_keys
            and key in used
            and key not in unfreed_keys
            and number.get(last_forward_order[key], blocks) < blocks
        )
        if is_chosen and graph.segments[int(str(key[1]))].name and _size(key, size_of) >= _LEAST:
            leaving[last_forward_order[key]].append(key)
    groups = []
    for order, keys in sorted(leaving.items()):
        first = min(used[key] for key in keys)
        fetched = _block_before(runs, first, graph)
        if order + 1 < fetched:
            places = (runs[run_order][0] for run_order in (order, order + 1, fetched, first))
            groups.append(_Group(runs[order][1], tuple(keys), *places))
    return groups


def _block_before(runs: Sequence[tuple[int, BlockRun]], first: int, graph: OperatorGraph) -> int:
    """The run that begins the block before, in the same backward pass; the run itself where there is none."""
    start, micro = first, runs[first][1].micro
    if not first or not _is_backward(runs[first - 1][1], graph) or runs[first - 1][1].micro != micro:
        return start
    start = first - 1
    block = (_twin(runs[start][1], graph), runs[start][1].block)
    while start and _is_backward(runs[start - 1][1], graph) and runs[start - 1][1].micro == micro:
        if (_twin(runs[start - 1][1], graph), runs[start - 1][1].block) != block:
            break
        start -= 1
    return start


def _is_backward(run: BlockRun, graph: OperatorGraph) -> bool:
    return run.recomputed or graph.segments[run.segment].backward


def _twin(run: BlockRun, graph: OperatorGraph) -> int:
    segment = graph.segments[run.segment]
    return segment.twin if segment.backward else run.segment


class _Storages:
    """What runs use, looked up once for all micro-batches."""

    def __init__(self, graph: OperatorGraph) -> None:
        self._graph = graph
        self._known: dict[BlockRun, list[tuple[Key, bool]]] = {}

    def of(self, run: BlockRun) -> list[tuple[Key, bool]]:
        """Storages, and whether the run makes them itself."""
        first = dataclasses.replace(run, micro=0)
        if first not in self._known:
            values = self._graph.segments[run.segment].values
            keys = [(value_key(self._graph, first, index), value) for index, value in enumerate(values)]
            self._known[first] = [(key, value.origin is ValueOrigin.OWN) for key, value in keys if key is not None]
        return [((run.micro, *key[1:]), is_created) for key, is_created in self._known[first]]


def _size(key: Key, size_of: Callable[[int, int], int]) -> int:
    return size_of(int(str(key[1])), int(str(key[4])))


def _peak(groups: Sequence[_Group], copies: _Copies) -> int:
    """Bytes of pinned buffers that are in use together, at most."""
    changes: list[tuple[int, int]] = []
    for group in groups:
        pinned = sum(1 << max(0, size - 1).bit_length() for size in copies.sizes(group))
        changes += [(group.leaves, pinned), (group.used, -pinned)]
    peak_bytes = now = 0
    for _, change in sorted(changes):
        now += change
        peak_bytes = max(peak_bytes, now)
    return peak_bytes


class _Copies:
    """Entries; groups of equal sizes share a template."""

    def __init__(self, size_of: Callable[[int, int], int], tables: Tables, hosts: HostTimes) -> None:
        self._size_of, self._tables, self._hosts = size_of, tables, hosts
        self._templates: dict[object, Template] = {}

    def sizes(self, group: _Group) -> tuple[int, ...]:
        """Bytes of each storage."""
        return tuple(_size(key, self._size_of) for key in group.keys)

    def down(self, group: _Group) -> Do:
        """To the host, once the block has run."""

        def emit_copy(rows: Rows) -> None:
            rows.record("made", 0)
            rows.wait("made", TO_HOST)
            for size in self.sizes(group):
                rows.work("aten::copy_", Copy("d2h", size, pinned=True), stream=TO_HOST)
            rows.record("down", TO_HOST)

        return self._do("down", group, Phase.FORWARD, emit_copy)

    def free(self, group: _Group) -> Do:
        """The compute stream waits for the copies, so that what comes after may use their memory."""

        def emit_free(rows: Rows) -> None:
            rows.wait("down", 0)
            for index, size in enumerate(self.sizes(group)):
                rows.free(str(index), rounded(size))

        return self._do("free", group, Phase.FORWARD, emit_free)

    def up(self, group: _Group) -> Do:
        """Copy from the host. The compute stream owns the buffers, so the copy waits for its earlier work."""

        def emit_copy(rows: Rows) -> None:
            for index, size in enumerate(self.sizes(group)):
                rows.alloc(str(index), rounded(size), Category.ACTIVATION, operator="aten::empty")
            rows.record("room", 0)
            rows.wait("room", FROM_HOST)
            for size in self.sizes(group):
                rows.work("aten::copy_", Copy("h2d", size, pinned=True), stream=FROM_HOST)
            rows.record("up", FROM_HOST)

        return self._do("up", group, Phase.BACKWARD, emit_copy)

    def wait(self, group: _Group) -> Do:
        """The compute stream waits for what it is about to use."""
        return self._do("wait", group, Phase.BACKWARD, lambda rows: rows.wait("up", 0))

    def _do(self, copy_name: str, group: _Group, phase: Phase, make: Callable[[Rows], None]) -> Do:
        kind = (copy_name, self.sizes(group))
        if kind not in self._templates:
            rows = Rows(self._tables, self._hosts, phase)
            make(rows)
            self._templates[kind] = rows.template()
        template, run = self._templates[kind], group.run
        block_key = (run.micro, run.segment, run.block, run.chunk)
        keys = (group.keys[int(slot)] if slot.isdecimal() else ("offload", slot, block_key) for slot in template.slots)
        return Do(template, tuple(keys))
