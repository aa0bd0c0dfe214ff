"""How often the programs of a launch run each block of a kernel's code.

Loops and branches are followed with the launch's arguments, program by program if they depend on the program. A loop in
which nothing else depends on the iteration is not followed iteration by iteration. For a large grid or a long loop, a
stratified sample with a fixed seed represents the whole.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from presim.capture.adapters.triton_flow import PRODUCTS, Flow, reads, writes
from presim.capture.adapters.triton_ir import Block, Code, Op, walk
from presim.capture.adapters.triton_scalars import Address, Scalar, evaluate

_MAX_PROGRAMS = 192  # programs followed: about as many as a GPU has SMs, because each may hold one
_MAX_INDEPENDENT = 256  # iterations of a loop followed if they are independent
_MAX_DEPENDENT = 4096  # the same if each iteration needs the previous one
_MAX_ITERATIONS, _FEW = 100_000, 16  # iterations of a launch after which only a few of each loop are followed
_AXES = ("x", "y", "z")

Runs = dict[int, float]  # block id -> times
Read = Callable[[Address], Scalar]  # reads a number in device memory if known


@dataclasses.dataclass
class UnknownLoop:
    """A loop with an unknown number of iterations."""

    inside: Runs  # in one iteration
    entered: float = 0.0  # how often all programs enter it


@dataclasses.dataclass(frozen=True)
class BlockRuns:
    """What the programs of a launch run."""

    programs: int
    runs: Runs  # by all programs
    each: list[Runs]  # by each followed program
    loops: list[UnknownLoop]
    guessed: bool  # whether a branch with work in it depends on an unknown value


def follow_programs(
    code: Code, flow: Flow, arguments: Mapping[str, Scalar], grid: tuple[int, int, int], read: Read
) -> BlockRuns:
    """Follow one launch; ``arguments``: parameter name -> number or address."""
    given: dict[int, Scalar] = {value: arguments.get(name) for name, value in code.parameters.items()}
    given |= {op.results[0]: evaluate(op, ()) for op in walk(code.blocks) if op.name == "arith.constant"}
    sampled = list(_sample(grid, flow.axes))
    programs = grid[0] * grid[1] * grid[2]
    follower = _Follower(flow, read, grid, programs / max(len(sampled), 1))
    each = [follower.program(code.blocks, dict(given), ids) for ids in sampled]
    total: Runs = defaultdict(float)
    for runs in each:
        for block, times in runs.items():
            total[block] += times * follower.stands_for
    return BlockRuns(programs, dict(total), each, list(follower.loops.values()), follower.guessed)


def _sample(grid: tuple[int, int, int], axes: frozenset[str]) -> Iterator[tuple[int, int, int]]:
    """Ids of the programs to follow, stratified along the axes that matter."""
    sizes = [size if axis in axes else min(size, 1) for axis, size in zip(_AXES, grid)]
    chosen, left = {}, _MAX_PROGRAMS
    for place in sorted(range(3), key=lambda place: sizes[place]):
        chosen[place] = strata(sizes[place], left)
        left = max(left // max(len(chosen[place]), 1), 1)
    yield from itertools.product(chosen[0], chosen[1], chosen[2])


def strata(size: int, most: int) -> list[int]:
    """All numbers below ``size``, or one from each of ``most`` equal intervals."""
    if size <= most:
        return list(range(size))
    drawn = random.Random(size)
    return [min(int((place + drawn.random()) * size / most), size - 1) for place in range(most)]


class _Follower:
    """Follows programs one by one; unknown values are None."""

    def __init__(self, flow: Flow, read: Read, grid: tuple[int, int, int], stands_for: float) -> None:
        self.flow, self.read, self.grid = flow, read, grid
        self.stands_for = stands_for  # programs represented by each followed one
        self.loops: dict[int, UnknownLoop] = {}
        self.guessed = False
        self._rounds = 0
        self._relevant: dict[int, list[Op]] = {}
        self._follow = {"scf.for": self._for, "scf.while": self._while, "scf.if": self._if, "tt.call": self._call}

    def program(self, blocks: list[Block], values: dict[int, Scalar], ids: tuple[int, int, int]) -> Runs:
        """How often one program runs each block."""
        self.values, self.ids = values, dict(zip(_AXES, ids))
        self.runs: Runs = defaultdict(float)
        self._region(blocks, 1.0)
        return dict(self.runs)

    def _region(self, blocks: list[Block], times: float) -> Op | None:
        """Run a region from its first block; returns the operation that leaves it."""
        labels = {block.label: block for block in blocks}
        block, seen = blocks[0], set[int]()
        while True:
            seen.add(id(block))
            self.runs[id(block)] += times
            for op in self._steps(block):
                follow = self._follow.get(op.name)
                if follow is not None:
                    follow(op, times)
                else:
                    self._set(op.results, [self._scalar(op)])
            end = block.ops[-1] if block.ops else None
            following = self._branch(end, labels) if end is not None and end.targets else None
            if following is None or id(following) in seen:
                return end
            block = following

    def _steps(self, block: Block) -> list[Op]:
        """Operations that control or contain what runs."""
        if id(block) not in self._relevant:
            control = self.flow.control
            steps = [op for op in block.ops if op.name in self._follow or not control.isdisjoint(op.results)]
            self._relevant[id(block)] = [op for op in steps if op.name != "arith.constant"]
        return self._relevant[id(block)]

    def _scalar(self, op: Op) -> Scalar:
        if op.name in ("tt.get_program_id", "tt.get_num_programs"):
            axis = op.text.split()[1]
            return self.ids[axis] if op.name == "tt.get_program_id" else self.grid[_AXES.index(axis)]
        values = self._get(op.operands)
        if op.name == "tt.load":
            return self.read(values[0]) if isinstance(values[0], Address) else None
        return evaluate(op, values)

    def _get(self, numbers: Sequence[int]) -> list[Scalar]:
        return [self.values.get(number) for number in numbers]

    def _set(self, numbers: Sequence[int], values: Sequence[Scalar]) -> None:
        for place, number in enumerate(numbers):
            self.values[number] = values[place] if place < len(values) else None

    def _for(self, op: Op, times: float) -> None:
        body = op.regions[0]
        turn, *carried = body[0].arguments
        trips = trip_count(*self._get(op.operands[:3]))
        if trips is None:
            self._count_unknown_loop(op, times)
            return
        control = self.flow.control
        if control.isdisjoint(body[0].arguments):
            if trips:
                self._region(body, times * trips)
            return
        is_dependent = not control.isdisjoint(carried)
        most = _FEW if self._rounds > _MAX_ITERATIONS else _MAX_DEPENDENT if is_dependent else _MAX_INDEPENDENT
        rounds = list(range(min(trips, most))) if is_dependent else strata(trips, most)
        low, _, step = self._get(op.operands[:3])
        self._set(carried, self._get(op.operands[3:]))
        for place in rounds:
            self.values[turn] = low + place * step  # type: ignore[operator,assignment]  # numbers, because the trip count is known
            end = self._region(body, times * trips / len(rounds))
            self._set(carried, self._get(end.operands if end else ()))
        self._rounds += len(rounds)
        self._set(op.results, self._get(carried) if trips <= most else ())

    def _while(self, op: Op, times: float) -> None:
        before, after = op.regions
        self._set(before[0].arguments, self._get(op.operands))
        while self._rounds <= _MAX_ITERATIONS:
            self._rounds += 1
            end = self._region(before, times)
            continues, *passed = self._get(end.operands if end else ()) or [None]
            if continues is None:
                break
            if not continues:
                self._set(op.results, passed)
                return
            self._set(after[0].arguments, passed)
            end = self._region(after, times)
            self._set(before[0].arguments, self._get(end.operands if end else ()))
        self._count_unknown_loop(op, times)

    def _if(self, op: Op, times: float) -> None:
        known = self.values.get(op.operands[0])
        regions = [*op.regions, *([[Block()]] if len(op.regions) == 1 else [])]
        chosen = regions[0 if known else 1] if known is not None else max(regions, key=_accesses)
        self.guessed |= known is None and _accesses(chosen) > 0
        end = self._region(chosen, times)
        self._set(op.results, self._get(end.operands) if end and known is not None else ())

    def _call(self, op: Op, times: float) -> None:
        if op.regions:
            self._set(op.regions[0][0].arguments, self._get(op.operands))
            end = self._region(op.regions[0], times)
            self._set(op.results, self._get(end.operands if end else ()))

    def _branch(self, end: Op, labels: dict[str, Block]) -> Block | None:
        targets = [(labels[label], given) for label, given in end.targets if label in labels]
        if len(targets) > 1:
            known = self.values.get(end.operands[0])
            place = int(_accesses([targets[1][0]]) > _accesses([targets[0][0]])) if known is None else int(not known)
            self.guessed |= known is None and _accesses([targets[place][0]]) > 0
            targets = targets[place:]
        if not targets:
            return None
        block, given = targets[0]
        self._set(block.arguments, self._get(given))
        return block

    def _count_unknown_loop(self, op: Op, times: float) -> None:
        """Count one iteration of a loop separately."""
        runs, self.runs = self.runs, defaultdict(float)
        for region in op.regions:
            self._set(region[0].arguments, ())
            self._region(region, 1.0)
        found = self.loops.setdefault(id(op), UnknownLoop({}))
        found.inside = dict(self.runs)
        found.entered += times * self.stands_for
        self.runs = runs
        self._set(op.results, ())


def trip_count(low: Scalar, high: Scalar, step: Scalar) -> int | None:
    """Iterations of ``for i in range(low, high, step)``; None if a bound is unknown."""
    if not (isinstance(low, int) and isinstance(high, int) and isinstance(step, int)) or step <= 0:
        return None
    return max(0, -((low - high) // step))


def _accesses(region: list[Block]) -> int:
    return sum(op.name in PRODUCTS or reads(op) or writes(op) for op in walk(region))
