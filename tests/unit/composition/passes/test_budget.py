"""Recomputation within a budget: the choice is the best there is, and what it promises holds in the trace."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim import hardware
from presim.composition.capture_comparison import work
from presim.composition.compose import compose
from presim.composition.passes import budget
from presim.composition.passes.budget import Problem, solve
from presim.composition.passes.graph_invariants import problems
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.trace.trace_invariants import check
from support.models import llama, qwen_moe

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=8)


@st.composite
def chains(draw: st.DrawFn) -> Problem:
    """Up to seven operators; each makes one value from some of those before it."""
    count = draw(st.integers(1, 7))
    numbers = st.integers(1, 9)
    reads = [draw(st.sets(st.integers(0, place - 1), max_size=3)) if place else set() for place in range(count)]
    never = draw(st.sets(st.integers(0, count - 1), max_size=2))
    return Problem(
        tuple(float("inf") if place in never else float(draw(numbers)) for place in range(count)),
        tuple(draw(numbers) for _ in range(count)),
        tuple((place,) for place in range(count)),
        tuple(tuple(sorted(one)) for one in reads),
        frozenset(draw(st.sets(st.integers(0, count - 1), min_size=1))),
    )


def every(problem: Problem) -> list[tuple[int, float]]:
    """Bytes and cost of each choice that makes all that is wanted."""
    found = []
    for kept in itertools.product((False, True), repeat=len(problem.sizes)):
        again, waiting = set[int](), [one for one in problem.needed_by_backward if not kept[one]]
        while waiting:
            one = waiting.pop()
            again.add(one)
            waiting += [needed for needed in problem.reads[one] if not kept[needed] and needed not in again]
        size = sum(size for size, is_kept in zip(problem.sizes, kept) if is_kept)
        found.append((size, sum(problem.costs[one] for one in again)))
    return [one for one in found if one[1] < float("inf")]


@settings(max_examples=60, deadline=None)
@given(chains(), st.floats(0, 1))
def test_no_other_choice_within_the_budget_is_cheaper(problem: Problem, part: float) -> None:
    choices = every(problem)
    fewest, most = min(size for size, _ in choices), sum(problem.sizes)
    assert solve(problem, None).bytes == fewest
    limit = fewest + part * (most - fewest)
    best = min(cost for size, cost in choices if size <= limit)
    assert solve(problem, limit).cost == pytest.approx(best)


@pytest.mark.torch_cuda
def test_less_memory_costs_more_work_and_all_of_it_none() -> None:
    """Of both directions the whole of the graph could run."""
    found = [
        budget.apply(model(), part, lambda node: 1.0, 1, 512) for model in (llama, qwen_moe) for part in (0, 0.5, 1)
    ]
    for graph, _ in found:
        assert list(problems(graph)) == []
    for one in (found[:3], found[3:]):
        (none,), (half,), (whole,) = (kept for _, kept in one)
        assert none.bytes <= half.bytes <= (none.bytes + whole.bytes) / 2 < whole.bytes == whole.max_bytes
        assert none.operators > half.operators > whole.operators == 0
        assert none.cost > half.cost > whole.cost == 0


@pytest.mark.torch_cuda
def test_a_plan_with_a_budget_lies_between_all_and_nothing_recomputed() -> None:
    def made(**fields: object) -> tuple[int, int]:
        job = compose(llama(), Plan(sequence=2048, **fields), CLUSTER)  # type: ignore[arg-type]
        check(job.traces[0])
        return job.traces[0].manifest.allocator["peak_allocated_bytes"], sum(work(job.traces[0]).values())

    plain, half, full = made(), made(activation_budget=0.5), made(recompute="full")
    assert full[0] < half[0] < plain[0]
    assert plain[1] <= half[1] <= full[1]
    (note,) = compose(llama(), Plan(sequence=512, activation_budget=0.5), CLUSTER).notes
    assert "the least time within the budget" in note


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"activation_budget": 1.5},
            r"^activation_budget = 1\.5 must be a share of a block's activations; use 0 to 1$",
        ),
        ({"activation_budget": 0.5, "recompute": "full"}, r"recompute = full recomputes all; leave out one of them$"),
    ],
)
@pytest.mark.torch_cuda
def test_a_budget_that_cannot_be_is_refused(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        compose(llama(), Plan(sequence=512, **fields), CLUSTER)  # type: ignore[arg-type]
