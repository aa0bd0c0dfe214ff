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

from presim.composition.blocks import rounded
from presim.composition.graph.schema import OperatorGraph, Origin
from presim.composition.hosts import HostTimes
from presim.composition.rows import FROM_HOST, TO_HOST, Rows, Tables, Template
from presim.composition.schedule import Action, Do, Key, Run, value_key
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

    run: Run  # the last run of the forward pass that uses them
    keys: tuple[Key, ...]
    leaves: int  # place of that run
    freed: int  # place of the run after it
    fetched: int  # place that their copies back are begun before
    used: int  # place of the first run of the backward pass that uses them


def apply(
    schedule: Sequence[Action],
    graph: OperatorGraph,
    blocks: int,
    held: Collection[Key],
    size_of: Callable[[int, int], int],
    tables: Tables,
    hosts: HostTimes,
) -> Offloaded:
    """The schedule in which the first ``blocks`` of each micro-batch's forward pass keep activations on the host.

    ``held``: storages that no block frees; they stay. ``size_of``: exact bytes of a value of a segment.
    """
    found = _groups(schedule, graph, blocks, held, size_of)
    copies = _Copies(size_of, tables, hosts)
    before: dict[int, list[Action]] = defaultdict(list)
    after: dict[int, list[Action]] = defaultdict(list)
    for group in found:
        after[group.leaves].append(copies.down(group))
        after[group.freed].append(copies.free(group))
        before[group.fetched].append(copies.up(group))
        before[group.used].append(copies.wait(group))
    actions = [one for place, action in enumerate(schedule) for one in (*before[place], action, *after[place])]
    total = sum(copies.sizes(group)[index] for group in found for index in range(len(group.keys)))
    return Offloaded(tuple(actions), total, _peak(found, copies))


def _groups(
    schedule: Sequence[Action],
    graph: OperatorGraph,
    blocks: int,
    held: Collection[Key],
    size_of: Callable[[int, int], int],
) -> list[_Group]:
    runs = [(place, action) for place, action in enumerate(schedule) if isinstance(action, Run)]
    made, left, used = set[Key](), dict[Key, int](), dict[Key, int]()
    number: dict[int, int] = {}  # of a forward run of a repeated block: how many came before in its micro-batch
    counts: dict[int, int] = defaultdict(int)
    storages = _Storages(graph)
    for order, (_, run) in enumerate(runs):
        segment = graph.segments[run.segment]
        is_forward = not (segment.backward or run.again)
        if is_forward and segment.name:
            number[order] = counts[run.micro]
            counts[run.micro] += 1
        for key, own in storages.of(run):
            if is_forward:
                left[key] = order
                if own:
                    made.add(key)
            else:
                used.setdefault(key, order)
    leaving: dict[int, list[Key]] = defaultdict(list)
    for key in left:
        is_chosen = key in made and key in used and key not in held and number.get(left[key], blocks) < blocks
        if is_chosen and graph.segments[int(str(key[1]))].name and _size(key, size_of) >= _LEAST:
            leaving[left[key]].append(key)
    found = []
    for order, keys in sorted(leaving.items()):
        first = min(used[key] for key in keys)
        fetched = _block_before(runs, first, graph)
        if order + 1 < fetched:
            places = (runs[one][0] for one in (order, order + 1, fetched, first))
            found.append(_Group(runs[order][1], tuple(keys), *places))
    return found


def _block_before(runs: Sequence[tuple[int, Run]], first: int, graph: OperatorGraph) -> int:
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


def _is_backward(run: Run, graph: OperatorGraph) -> bool:
    return run.again or graph.segments[run.segment].backward


def _twin(run: Run, graph: OperatorGraph) -> int:
    segment = graph.segments[run.segment]
    return segment.twin if segment.backward else run.segment


class _Storages:
    """What runs use, looked up once for all micro-batches."""

    def __init__(self, graph: OperatorGraph) -> None:
        self._graph = graph
        self._known: dict[Run, list[tuple[Key, bool]]] = {}

    def of(self, run: Run) -> list[tuple[Key, bool]]:
        """Storages, and whether the run makes them itself."""
        first = dataclasses.replace(run, micro=0)
        if first not in self._known:
            values = self._graph.segments[run.segment].values
            keys = [(value_key(self._graph, first, index), one) for index, one in enumerate(values)]
            self._known[first] = [(key, one.origin is Origin.OWN) for key, one in keys if key is not None]
        return [((run.micro, *key[1:]), own) for key, own in self._known[first]]


def _size(key: Key, size_of: Callable[[int, int], int]) -> int:
    return size_of(int(str(key[1])), int(str(key[4])))


def _peak(groups: Sequence[_Group], copies: _Copies) -> int:
    """Bytes of pinned buffers that are in use together, at most."""
    changes: list[tuple[int, int]] = []
    for group in groups:
        pinned = sum(1 << max(0, size - 1).bit_length() for size in copies.sizes(group))
        changes += [(group.leaves, pinned), (group.used, -pinned)]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


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

        def rows(rows: Rows) -> None:
            rows.record("made", 0)
            rows.wait("made", TO_HOST)
            for size in self.sizes(group):
                rows.work("aten::copy_", Copy("d2h", size, pinned=True), stream=TO_HOST)
            rows.record("down", TO_HOST)

        return self._do("down", group, Phase.FORWARD, rows)

    def free(self, group: _Group) -> Do:
        """The compute stream waits for the copies, so that what comes after may use their memory."""

        def rows(rows: Rows) -> None:
            rows.wait("down", 0)
            for index, size in enumerate(self.sizes(group)):
                rows.free(str(index), rounded(size))

        return self._do("free", group, Phase.FORWARD, rows)

    def up(self, group: _Group) -> Do:
        """Copy from the host. The compute stream owns the buffers, so the copy waits for its earlier work."""

        def rows(rows: Rows) -> None:
            for index, size in enumerate(self.sizes(group)):
                rows.alloc(str(index), rounded(size), Category.ACTIVATION, operator="aten::empty")
            rows.record("room", 0)
            rows.wait("room", FROM_HOST)
            for size in self.sizes(group):
                rows.work("aten::copy_", Copy("h2d", size, pinned=True), stream=FROM_HOST)
            rows.record("up", FROM_HOST)

        return self._do("up", group, Phase.BACKWARD, rows)

    def wait(self, group: _Group) -> Do:
        """The compute stream waits for what it is about to use."""
        return self._do("wait", group, Phase.BACKWARD, lambda rows: rows.wait("up", 0))

    def _do(self, what: str, group: _Group, phase: Phase, make: Callable[[Rows], None]) -> Do:
        kind = (what, self.sizes(group))
        if kind not in self._templates:
            rows = Rows(self._tables, self._hosts, phase)
            make(rows)
            self._templates[kind] = rows.template()
        template, run = self._templates[kind], group.run
        place = (run.micro, run.segment, run.block, run.chunk)
        keys = (group.keys[int(slot)] if slot.isdecimal() else ("offload", slot, place) for slot in template.slots)
        return Do(template, tuple(keys))
