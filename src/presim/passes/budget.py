"""Recomputation within an activation memory budget, solved exactly.

As with ``torch._functorch.config.activation_memory_budget``, 1 keeps everything that the backward pass needs, and 0 as
little as possible. In between, an integer program (HiGHS) minimizes the time of recomputed operators within the budget.
Communication, random numbers, and values that the host reads are never recomputed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.graph.schema import Node, OperatorGraph, Origin, Segment
from presim.graph.sizes import read
from presim.graph.works import READS_BACK
from presim.passes import selective
from presim.passes.collectives import PREFIX

_RANDOM = ("dropout", "bernoulli", "rand", "normal", "uniform", "multinomial")
_TOLERANCE = 0.5


@dataclasses.dataclass(frozen=True)
class Problem:
    """Values that operators produce, and the costs of keeping or recomputing them."""

    costs: tuple[float, ...]  # seconds to run each operator again; infinite: never recomputed
    sizes: tuple[int, ...]  # bytes to keep each value
    makers: tuple[tuple[int, ...], ...]  # per value: all operators that write it
    reads: tuple[tuple[int, ...], ...]  # per operator: the values it reads
    wanted: frozenset[int]  # values that the backward pass needs
    # (value, operator): the operator cannot read the kept value, because it was overwritten
    apart: frozenset[tuple[int, int]] = frozenset()


@dataclasses.dataclass(frozen=True)
class Choice:
    """Kept values and recomputed operators."""

    kept: frozenset[int]  # values
    again: frozenset[int]  # operators
    bytes: int
    cost: float


def solve(problem: Problem, limit: float | None) -> Choice:
    """The choice with the least recomputation that keeps at most ``limit`` bytes; None: the choice with fewest bytes.

    Raises:
        InputError: the solver is not installed.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # 0.3 s, paid by plans with a budget only
    except ImportError:
        raise InputError("an activation budget needs scipy: `pip install 'presim[search]'`") from None

    operators, values = len(problem.costs), len(problem.sizes)
    never = np.array([not np.isfinite(cost) for cost in problem.costs] + [False] * values)
    costs = np.array([cost if np.isfinite(cost) else 0.0 for cost in problem.costs] + [0.0] * values)
    sizes = np.array([0.0] * operators + list(map(float, problem.sizes)))
    scale = max(1.0, sizes.max(initial=0))
    rows, least = _rules(problem)
    rules = [LinearConstraint(np.array(rows), np.array(least))] if rows else []
    if limit is not None:
        rules.append(LinearConstraint(sizes[None] / scale, ub=(math.floor(limit) + _TOLERANCE) / scale))
    goal = sizes / scale if limit is None else costs / max(costs.max(initial=0), 1e-30)
    found = milp(
        goal,
        integrality=np.ones(len(goal)),
        bounds=Bounds(0, np.where(never, 0, 1)),
        constraints=rules,
        options={"mip_rel_gap": 0.0},
    )
    chosen = np.flatnonzero(found.x > _TOLERANCE).tolist()
    again = frozenset(one for one in chosen if one < operators)
    kept = frozenset(one - operators for one in chosen if one >= operators)
    total = sum(problem.costs[one] for one in sorted(again))
    return Choice(kept, again, sum(problem.sizes[one] for one in kept), total)


def _rules(problem: Problem) -> tuple[list[NDArray[np.float64]], list[float]]:
    """Constraint rows over operators and values, and the lower bound of each."""
    operators, values = len(problem.costs), len(problem.sizes)
    rows: list[NDArray[np.float64]] = []
    least: list[float] = []

    def rule(bound: float, *terms: tuple[int, float]) -> None:
        row = np.zeros(operators + values)
        for place, factor in terms:
            row[place] += factor
        rows.append(row)
        least.append(bound)

    for value in sorted(problem.wanted):
        for maker in problem.makers[value]:
            rule(1, (operators + value, 1), (maker, 1))
    for operator, needed in enumerate(problem.reads):
        for value in needed:
            for maker in problem.makers[value]:
                if maker != operator:
                    rule(0, (operators + value, 1), (maker, 1), (operator, -1))
    for value, operator in sorted(problem.apart):
        rule(-1, (operators + value, -1), (operator, -1))
    return rows, least


@dataclasses.dataclass(frozen=True)
class Kept:
    """The choice for the blocks of a segment, per micro-batch."""

    name: str
    bytes: int
    most: int  # bytes if everything is kept
    operators: int  # number of recomputed operators
    cost: float


def apply(
    graph: OperatorGraph, budget: float, cost: Callable[[Node], float], batch: int, sequence: int
) -> tuple[OperatorGraph, list[Kept]]:
    """Apply a budget to repeated blocks: keep at most this share of activations; ``cost``: seconds of an operator."""
    chosen: list[Kept] = []
    segments = list(graph.segments)
    for index, backward in enumerate(graph.segments):
        if not (backward.backward and backward.twin >= 0 and backward.name):
            continue
        forward = graph.segments[backward.twin]
        values, problem = _problem(forward, backward, cost, batch, sequence)
        most = sum(problem.sizes[one] for one in problem.wanted)
        fewest = solve(problem, None).bytes if budget < 1 else most
        choice = solve(problem, fewest + budget * (most - fewest))
        made = {
            one for one in range(len(values)) if problem.makers[one] and choice.again.issuperset(problem.makers[one])
        }
        needed = problem.wanted.union(*(problem.reads[one] for one in choice.again)) - made
        segments[index] = selective.with_again(forward, backward, set(values) - {values[one] for one in made})
        held = sum(problem.sizes[one] for one in needed)
        chosen.append(Kept(forward.name, held, most, len(choice.again), choice.cost))
    return msgspec.structs.replace(graph, segments=tuple(segments)), chosen


def _problem(
    forward: Segment, backward: Segment, cost: Callable[[Node], float], batch: int, sequence: int
) -> tuple[list[int], Problem]:
    """The problem of a forward segment, and the value that each of its numbers stands for."""
    makers = selective.makers(forward)
    values = [index for index in sorted(makers) if forward.values[index].origin is Origin.OWN]
    number = {index: place for place, index in enumerate(values)}
    operators = sorted({place for index in values for place in makers[index]})
    place_of = {node: place for place, node in enumerate(operators)}
    used = {one.index for one in backward.values if one.origin is Origin.SEGMENT and one.segment == backward.twin}
    free = {one.again for index, one in enumerate(forward.values) if one.again >= 0 and index in used}
    reads, apart = [], set[tuple[int, int]]()
    for place in operators:
        node = forward.nodes[place]
        needed = {one.value for one in node.inputs if one.value in number}
        reads.append(tuple(sorted(number[one] for one in needed)))
        for one in needed:
            if any(later >= place and _writes(forward.nodes[later], one) for later in makers[one]):
                apart.add((number[one], place_of[place]))
    problem = Problem(
        tuple(_cost(forward.nodes[place], cost) for place in operators),
        tuple(0 if one in free else read(forward.values[one].bytes)(batch, sequence) for one in values),
        tuple(tuple(place_of[place] for place in makers[one]) for one in values),
        tuple(reads),
        frozenset(number[one] for one in used if one in number),
        frozenset(apart),
    )
    return values, problem


def _writes(node: Node, value: int) -> bool:
    """Whether a node changes a value in place."""
    is_input = any(node.inputs[place].value == value for place in node.written)
    return is_input or (node.operator.startswith(PREFIX) and not node.outputs)


def _cost(node: Node, cost: Callable[[Node], float]) -> float:
    is_once = node.operator.startswith(PREFIX) or node.operator in READS_BACK
    is_once |= any(word in node.operator for word in _RANDOM)
    return float("inf") if is_once else cost(node)
