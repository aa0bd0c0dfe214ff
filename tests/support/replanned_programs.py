"""Programs that repeat a cycle of micro-batches, written as traces with any number of repetitions."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Category, Manifest, Phase, Trace, fetch_request
from presim.trace.signatures import Collective, Elementwise

MAX_LAG = 3  # repetitions between a definition and what refers to it


def kernel(elements: int) -> Elementwise:
    """Device work; another number of elements is other work."""
    return Elementwise(bytes_read=4 * elements, bytes_written=4, elements=elements, dtype="float32")


@dataclasses.dataclass(frozen=True)
class Event:
    """Recorded after one slot and awaited before a slot, as many repetitions later."""

    record: int
    wait: int
    lag: int
    is_host: bool = False  # the host waits, and no stream


@dataclasses.dataclass(frozen=True)
class Block:
    """Allocated before one slot and freed after a slot, as many repetitions later."""

    alloc: int
    free: int
    lag: int  # -1: freed at the end of the step; -2: never
    size: int = 512
    is_tagged: bool = False


@dataclasses.dataclass(frozen=True)
class Program:
    """A step: set-up, repetitions of a cycle of slots, and an update.

    Slots are pieces of device work, the first of a forward and the last of a backward pass. Each has a stream, a
    number of elements and whether it is two collectives of one launch instead.
    """

    slots: Sequence[tuple[int, int, bool]]
    events: Sequence[Event] = ()
    blocks: Sequence[Block] = ()
    workers: int = 0  # of a data loader
    prefetched: int = 1  # batches that it prepares ahead
    steps: int = 1
    block_prologue: bool = False  # blocks of the set-up are allocated by the same module as those of the cycle

    def trace(self, repetitions: int, manifest: Manifest | None = None) -> Trace:
        """The trace of the program with so many repetitions of its cycle in each step."""
        return _Writer(self, manifest or default_manifest()).trace(repetitions)


class _Writer:
    def __init__(self, program: Program, manifest: Manifest) -> None:
        self._program = program
        self._build = TraceBuilder(manifest)
        self._launches = itertools.count(1)
        self._unused = itertools.count(1 << 20, 1 << 12)
        self._freed: dict[int, list[int]] = {}  # addresses by size: they are used again
        self._recordings: dict[tuple[int, int], int] = {}  # by event and repetition
        self._addresses: dict[tuple[int, int], int] = {}  # by block and repetition
        self._asked = self._awaited = 0

    def trace(self, repetitions: int) -> Trace:
        for _ in range(self._program.prefetched if self._program.workers else 0):
            self._ask()
        for _ in range(self._program.steps):
            self._step(repetitions)
        return self._build.trace()

    def _step(self, repetitions: int) -> None:
        for before in range(-MAX_LAG, 0):
            for number in range(len(self._program.events)):
                self._record(number, before)
            for number in range(len(self._program.blocks)):
                self._allocate(number, before)
        for repetition in range(repetitions):
            for slot in range(len(self._program.slots)):
                self._run(slot, repetition)
        self._build.work(kernel(7777), phase=Phase.OPTIMIZER)
        for number, block in enumerate(self._program.blocks):
            for repetition in range(-MAX_LAG, repetitions):
                if block.lag != -2 and (number, repetition) in self._addresses:
                    self._free(number, repetition)
        for number in range(len(self._program.events)):
            self._build.wait(self._recordings[number, repetitions - 1], stream=1)
        self._addresses.clear()
        self._build.step()

    def _run(self, slot: int, repetition: int) -> None:
        program = self._program
        if slot == 0 and program.workers:
            self._build.fetch_wait(self._request(self._awaited))
            self._awaited += 1
            self._ask()
        for number, block in enumerate(program.blocks):
            if block.alloc == slot:
                self._allocate(number, repetition)
        for number, event in enumerate(program.events):
            if event.wait == slot:
                recording = self._recordings[number, repetition - event.lag]
                self._build.event_sync(recording) if event.is_host else self._build.wait(recording, stream=2)
        self._work(slot)
        for number, event in enumerate(program.events):
            if event.record == slot:
                self._record(number, repetition)
        for number, block in enumerate(program.blocks):
            if block.free == slot and block.lag >= 0:
                self._free(number, repetition - block.lag)

    def _work(self, slot: int) -> None:
        stream, elements, is_collective = self._program.slots[slot]
        is_backward = slot >= len(self._program.slots) // 2
        scope, phase = f"slot{slot}", Phase.BACKWARD if is_backward else Phase.FORWARD
        if not is_collective or slot in (0, len(self._program.slots) - 1):
            self._build.work(kernel(elements), stream=stream, scope=scope, phase=phase)
            return
        launch = next(self._launches)
        for kind in ("send", "recv"):
            message = Collective(kind, elements, "float32", group=0, peer=1)
            self._build.work(message, stream=stream, scope=scope, phase=phase, launch_group=launch)

    def _allocate(self, number: int, repetition: int) -> None:
        block = self._program.blocks[number]
        freed = self._freed.get(block.size, [])
        address = self._addresses[number, repetition] = freed.pop() if freed else next(self._unused)
        category = Category.ACTIVATION if block.is_tagged else Category.OTHER
        is_set_up = repetition < 0 and not self._program.block_prologue
        scope = f"block{number} of the set-up" if is_set_up else f"block{number}"
        self._build.alloc(address, block.size, category=category, scope=scope)

    def _free(self, number: int, repetition: int) -> None:
        size, address = self._program.blocks[number].size, self._addresses.pop((number, repetition))
        self._build.free(address, size)
        self._freed.setdefault(size, []).append(address)

    def _record(self, number: int, repetition: int) -> None:
        self._recordings[number, repetition] = self._build.record(stream=1)

    def _ask(self) -> None:
        self._build.fetch(self._request(self._asked), 1000)
        self._asked += 1

    def _request(self, number: int) -> int:
        return fetch_request(0, number % self._program.workers, number // self._program.workers)
