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

from presim.composition.graph.graph_schema import Node, OperatorGraph, Segment, ValueOrigin
from presim.composition.graph.sizes import read
from presim.composition.graph.works import READS_BACK
from presim.composition.passes import selective
from presim.composition.passes.collective_names import PREFIX
from presim.errors import InputError

_RANDOM = ("dropout", "bernoulli", "rand", "normal", "uniform", "multinomial")
_TOLERANCE = 0.5


@dataclasses.dataclass(frozen=True)
class Problem:
    """Values that operators produce, and the costs of keeping or recomputing them."""

    costs: tuple[float, ...]  # seconds to run each operator again; infinite: never recomputed
    sizes: tuple[int, ...]  # bytes to keep each value
    makers: tuple[tuple[int, ...], ...]  # per value: all operators that write it
    reads: tuple[tuple[int, ...], ...]  # per operator: the values it reads
    needed_by_backward: frozenset[int]  # values that the backward pass needs
    # (value, operator): the operator cannot read the kept value, because it was overwritten
    overwritten_reads: frozenset[tuple[int, int]] = frozenset()


@dataclasses.dataclass(frozen=True)
class RecomputationChoice:
    """Kept values and recomputed operators."""

    kept_values: frozenset[int]
    recomputed_operators: frozenset[int]
    bytes: int
    cost: float


def solve(problem: Problem, limit: float | None) -> RecomputationChoice:
    """The choice with the least recomputation that keeps at most ``limit`` bytes; None: the choice with fewest bytes.

    Raises:
        InputError: the solver is not installed.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # 0.3 s, paid by plans with a budget only
    except ImportError:
        raise InputError("an activation budget needs scipy: `pip install 'presim[search]'`") from None

    num_operators, num_values = len(problem.costs), len(problem.sizes)
    is_never_recomputed = np.array([not np.isfinite(cost) for cost in problem.costs] + [False] * num_values)
    costs = np.array([cost if np.isfinite(cost) else 0.0 for cost in problem.costs] + [0.0] * num_values)
    sizes = np.array([0.0] * num_operators + list(map(float, problem.sizes)))
    scale = max(1.0, sizes.max(initial=0))
    rows, lower_bounds = _constraint_rows(problem)
    constraints = [LinearConstraint(np.array(rows), np.array(lower_bounds))] if rows else []
    if limit is not None:
        constraints.append(LinearConstraint(sizes[None] / scale, ub=(math.floor(limit) + _TOLERANCE) / scale))
    objective = sizes / scale if limit is None else costs / max(costs.max(initial=0), 1e-30)
    solution = milp(
        objective,
        integrality=np.ones(len(objective)),
        bounds=Bounds(0, np.where(is_never_recomputed, 0, 1)),
        constraints=constraints,
        options={"mip_rel_gap": 0.0},
    )
    selected_variables = np.flatnonzero(solution.x > _TOLERANCE).tolist()
    recomputed_operators = frozenset(variable for variable in selected_variables if variable < num_operators)
    kept_values = frozenset(variable - num_operators for variable in selected_variables if variable >= num_operators)
    total_cost = sum(problem.costs[operator] for operator in sorted(recomputed_operators))
    return RecomputationChoice(
        kept_values, recomputed_operators, sum(problem.sizes[value] for value in kept_values), total_cost
    )


def _constraint_rows(problem: Problem) -> tuple[list[NDArray[np.float64]], list[float]]:
    """Constraint rows over operators and values, and the lower bound of each."""
    num_operators, num_values = len(problem.costs), len(problem.sizes)
    rows: list[NDArray[np.float64]] = []
    lower_bounds: list[float] = []

    def add_constraint(lower_bound: float, *terms: tuple[int, float]) -> None:
        row = np.zeros(num_operators + num_values)
        for variable, coefficient in terms:
            row[variable] += coefficient
        rows.append(row)
        lower_bounds.append(lower_bound)

    for value in sorted(problem.needed_by_backward):
        for producer in problem.makers[value]:
            add_constraint(1, (num_operators + value, 1), (producer, 1))
    for operator, read_values in enumerate(problem.reads):
        for value in read_values:
            for producer in problem.makers[value]:
                if producer != operator:
                    add_constraint(0, (num_operators + value, 1), (producer, 1), (operator, -1))
    for value, operator in sorted(problem.overwritten_reads):
        add_constraint(-1, (num_operators + value, -1), (operator, -1))
    return rows, lower_bounds


@dataclasses.dataclass(frozen=True)
class BlockRecomputation:
    """What a budget keeps and recomputes in each block of a segment, per micro-batch."""

    name: str
    bytes: int
    max_bytes: int  # if everything is kept
    operators: int  # number of recomputed operators
    cost: float


def apply(
    graph: OperatorGraph, budget: float, cost: Callable[[Node], float], batch: int, sequence: int
) -> tuple[OperatorGraph, list[BlockRecomputation]]:
    """Apply a budget to repeated blocks: keep at most this share of activations; ``cost``: seconds of an operator."""
    recomputations: list[BlockRecomputation] = []
    segments = list(graph.segments)
    for index, backward in enumerate(graph.segments):
        if not (backward.backward and backward.twin >= 0 and backward.name):
            continue
        forward = graph.segments[backward.twin]
        values, problem = _block_problem(forward, backward, cost, batch, sequence)
        max_bytes = sum(problem.sizes[value] for value in problem.needed_by_backward)
        min_bytes = solve(problem, None).bytes if budget < 1 else max_bytes
        choice = solve(problem, min_bytes + budget * (max_bytes - min_bytes))
        recomputed_values = {
            number
            for number in range(len(values))
            if problem.makers[number] and choice.recomputed_operators.issuperset(problem.makers[number])
        }
        needed = (
            problem.needed_by_backward.union(*(problem.reads[operator] for operator in choice.recomputed_operators))
            - recomputed_values
        )
        segments[index] = selective.with_recomputation(
            forward, backward, set(values) - {values[number] for number in recomputed_values}
        )
        kept_bytes = sum(problem.sizes[value] for value in needed)
        recomputations.append(
            BlockRecomputation(forward.name, kept_bytes, max_bytes, len(choice.recomputed_operators), choice.cost)
        )
    return msgspec.structs.replace(graph, segments=tuple(segments)), recomputations


def _block_problem(
    forward: Segment, backward: Segment, cost: Callable[[Node], float], batch: int, sequence: int
) -> tuple[list[int], Problem]:
    """The values of a forward segment by their number in the problem, and the problem."""
    writers_by_value = selective.writers_by_value(forward)
    values = [index for index in sorted(writers_by_value) if forward.values[index].origin is ValueOrigin.OWN]
    value_numbers = {value: number for number, value in enumerate(values)}
    operators = sorted({node for value in values for node in writers_by_value[value]})
    operator_numbers = {node: number for number, node in enumerate(operators)}
    read_by_backward = {
        value.index
        for value in backward.values
        if value.origin is ValueOrigin.SEGMENT and value.segment == backward.twin
    }
    carried_values = {
        value.again for index, value in enumerate(forward.values) if value.again >= 0 and index in read_by_backward
    }
    reads, overwritten_reads = [], set[tuple[int, int]]()
    for node_index in operators:
        node = forward.nodes[node_index]
        read_values = {operand.value for operand in node.inputs if operand.value in value_numbers}
        reads.append(tuple(sorted(value_numbers[value] for value in read_values)))
        for value in read_values:
            if any(
                other_index >= node_index and _overwrites(forward.nodes[other_index], value)
                for other_index in writers_by_value[value]
            ):
                overwritten_reads.add((value_numbers[value], operator_numbers[node_index]))
    problem = Problem(
        tuple(_recomputation_cost(forward.nodes[node_index], cost) for node_index in operators),
        tuple(0 if value in carried_values else read(forward.values[value].bytes)(batch, sequence) for value in values),
        tuple(tuple(operator_numbers[node_index] for node_index in writers_by_value[value]) for value in values),
        tuple(reads),
        frozenset(value_numbers[value] for value in read_by_backward if value in value_numbers),
        frozenset(overwritten_reads),
    )
    return values, problem


def _overwrites(node: Node, value: int) -> bool:
    """Whether a node changes a value in place."""
    is_input = any(node.inputs[position].value == value for position in node.written)
    return is_input or (node.operator.startswith(PREFIX) and not node.outputs)


def _recomputation_cost(node: Node, cost: Callable[[Node], float]) -> float:
    is_never_recomputed = node.operator.startswith(PREFIX) or node.operator in READS_BACK
    is_never_recomputed |= any(word in node.operator for word in _RANDOM)
    return float("inf") if is_never_recomputed else cost(node)
