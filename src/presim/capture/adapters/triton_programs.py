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

from presim.capture.adapters.triton_flow import PRODUCTS, Flow, reads_memory, writes_memory
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
    runs_by_program: list[Runs]  # of each followed program
    loops: list[UnknownLoop]
    guessed: bool  # whether a branch with work in it depends on an unknown value


def follow_programs(
    code: Code, flow: Flow, arguments: Mapping[str, Scalar], grid: tuple[int, int, int], read: Read
) -> BlockRuns:
    """Follow one launch; ``arguments``: parameter name -> number or address."""
    initial_values: dict[int, Scalar] = {value: arguments.get(name) for name, value in code.parameters.items()}
    initial_values |= {op.results[0]: evaluate(op, ()) for op in walk(code.blocks) if op.name == "arith.constant"}
    sampled_ids = list(_sample(grid, flow.axes))
    programs = grid[0] * grid[1] * grid[2]
    follower = _Follower(flow, read, grid, programs / max(len(sampled_ids), 1))
    runs_by_program = [follower.count_runs(code.blocks, dict(initial_values), ids) for ids in sampled_ids]
    total: Runs = defaultdict(float)
    for runs in runs_by_program:
        for block, times in runs.items():
            total[block] += times * follower.stands_for
    return BlockRuns(programs, dict(total), runs_by_program, list(follower.loops.values()), follower.guessed)


def _sample(grid: tuple[int, int, int], axes: frozenset[str]) -> Iterator[tuple[int, int, int]]:
    """Ids of the programs to follow, stratified along the axes that matter."""
    sizes = [size if axis in axes else min(size, 1) for axis, size in zip(_AXES, grid)]
    ids_by_axis, remaining_programs = {}, _MAX_PROGRAMS
    for axis in sorted(range(3), key=lambda axis: sizes[axis]):
        ids_by_axis[axis] = strata(sizes[axis], remaining_programs)
        remaining_programs = max(remaining_programs // max(len(ids_by_axis[axis]), 1), 1)
    yield from itertools.product(ids_by_axis[0], ids_by_axis[1], ids_by_axis[2])


def strata(size: int, max_count: int) -> list[int]:
    """All numbers below ``size``, or one from each of ``max_count`` equal intervals."""
    if size <= max_count:
        return list(range(size))
    generator = random.Random(size)
    return [min(int((stratum + generator.random()) * size / max_count), size - 1) for stratum in range(max_count)]


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

    def count_runs(self, blocks: list[Block], values: dict[int, Scalar], ids: tuple[int, int, int]) -> Runs:
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
        for index, number in enumerate(numbers):
            self.values[number] = values[index] if index < len(values) else None

    def _for(self, op: Op, times: float) -> None:
        body = op.regions[0]
        induction_variable, *carried = body[0].arguments
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
        max_rounds = _FEW if self._rounds > _MAX_ITERATIONS else _MAX_DEPENDENT if is_dependent else _MAX_INDEPENDENT
        rounds = list(range(min(trips, max_rounds))) if is_dependent else strata(trips, max_rounds)
        low, _, step = self._get(op.operands[:3])
        self._set(carried, self._get(op.operands[3:]))
        for iteration in rounds:
            self.values[induction_variable] = low + iteration * step  # type: ignore[operator,assignment]  # numbers, because the trip count is known
            end = self._region(body, times * trips / len(rounds))
            self._set(carried, self._get(end.operands if end else ()))
        self._rounds += len(rounds)
        self._set(op.results, self._get(carried) if trips <= max_rounds else ())

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
        condition = self.values.get(op.operands[0])
        regions = [*op.regions, *([[Block()]] if len(op.regions) == 1 else [])]
        branch = regions[0 if condition else 1] if condition is not None else max(regions, key=_accesses)
        self.guessed |= condition is None and _accesses(branch) > 0
        end = self._region(branch, times)
        self._set(op.results, self._get(end.operands) if end and condition is not None else ())

    def _call(self, op: Op, times: float) -> None:
        if op.regions:
            self._set(op.regions[0][0].arguments, self._get(op.operands))
            end = self._region(op.regions[0], times)
            self._set(op.results, self._get(end.operands if end else ()))

    def _branch(self, end: Op, labels: dict[str, Block]) -> Block | None:
        targets = [(labels[label], passed_values) for label, passed_values in end.targets if label in labels]
        if len(targets) > 1:
            condition = self.values.get(end.operands[0])
            more_work_if_false = _accesses([targets[1][0]]) > _accesses([targets[0][0]])
            target_index = int(more_work_if_false if condition is None else not condition)
            self.guessed |= condition is None and _accesses([targets[target_index][0]]) > 0
            targets = targets[target_index:]
        if not targets:
            return None
        block, passed_values = targets[0]
        self._set(block.arguments, self._get(passed_values))
        return block

    def _count_unknown_loop(self, op: Op, times: float) -> None:
        """Count one iteration of a loop separately."""
        runs, self.runs = self.runs, defaultdict(float)
        for region in op.regions:
            self._set(region[0].arguments, ())
            self._region(region, 1.0)
        loop = self.loops.setdefault(id(op), UnknownLoop({}))
        loop.inside = dict(self.runs)
        loop.entered += times * self.stands_for
        self.runs = runs
        self._set(op.results, ())


def trip_count(low: Scalar, high: Scalar, step: Scalar) -> int | None:
    """Iterations of ``for i in range(low, high, step)``; None if a bound is unknown."""
    if not (isinstance(low, int) and isinstance(high, int) and isinstance(step, int)) or step <= 0:
        return None
    return max(0, -((low - high) // step))


def _accesses(region: list[Block]) -> int:
    return sum(op.name in PRODUCTS or reads_memory(op) or writes_memory(op) for op in walk(region))
