"""Where stages lie and what passes wait for, in schedules of one's own: symmetric, ordered, made by functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.composition.compose import compose
from presim.composition.graph.take import open_graph
from presim.composition.own_schedule import parse
from presim.composition.pass_orders import dual_pipe_v, interleaved_passes
from presim.composition.pipeline_steps import AWAIT, SIGNAL, PipelineStep
from presim.composition.plan import Plan
from presim.composition.schedule_source import read_passes, with_passes
from presim.composition.stage_placement import partners, stage_ranks
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware import choose_cluster
from presim.result import Result

CLUSTER = choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=4)
LETTERS = {"forward": "F", "backward": "B", "input": "I", "weight": "W"}
PLAIN = ("0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1")


def row(steps: Sequence[PipelineStep | None]) -> str:
    return ",".join("" if step is None else f"{step.stage}{LETTERS[step.kind]}{step.micro}" for step in steps)


def simulated(rows: Sequence[str] = (), **fields: object) -> Result:
    """A step of Llama 3 8B in a pipeline over four GPUs of a node."""
    plan = Plan(sequence=512, rank_passes=tuple(rows), **fields)  # type: ignore[arg-type]
    return evaluate(compose(open_graph("llama3-8b"), plan, CLUSTER), CLUSTER, brief=True).result


def test_a_v_written_as_a_file_is_dualpipev() -> None:
    """The stages of each rank follow from its row: down the ranks and up again."""
    rows = [row(dual_pipe_v(rank, 4, 8)) for rank in range(4)]
    size: dict[str, Any] = {"pipeline": 4, "virtual": 2, "global_batch": 8}
    own, named = simulated(rows, schedule="own", **size), simulated(schedule="dualpipev", **size)
    assert own.step_time_s == named.step_time_s
    assert own.memory.peak_allocated_bytes == named.memory.peak_allocated_bytes


def test_stages_may_change_places_on_equal_gpus() -> None:
    """GPUs of a node are equally far from each other, so the order of the ranks does not matter."""
    rows = [row(interleaved_passes(rank, 4, 2, 4, False)) for rank in range(4)]
    size: dict[str, Any] = {"schedule": "own", "pipeline": 4, "virtual": 2, "global_batch": 4}
    exchanged = [rows[rank] for rank in (0, 2, 1, 3)]
    plan = Plan(sequence=512, pipeline=4, virtual=2, rank_passes=tuple(exchanged), schedule="own")
    assert (stage_ranks(plan), partners(plan)[0]) == ((0, 2, 1, 3, 0, 2, 1, 3), frozenset({2}))
    assert simulated(exchanged, **size).step_time_s == pytest.approx(simulated(rows, **size).step_time_s, rel=1e-3)


def test_a_pass_begins_after_the_one_that_it_depends_on() -> None:
    """Signals are on both sides; without a second forward pass in flight the step is the sum of the stages' work."""
    first, second = parse((*PLAIN, "1B0 -> 0F1"), 2, 2, 2).orders()
    kinds = [[step.kind for step in steps] for steps in (first, second)]
    assert kinds[0].index(AWAIT) < [index for index, kind in enumerate(kinds[0]) if kind == "forward"][1]
    assert kinds[1].index(SIGNAL) > kinds[1].index("backward")
    size: dict[str, Any] = {"schedule": "own", "pipeline": 2, "global_batch": 4}
    free, chained = simulated(PLAIN, **size), simulated((*PLAIN, "1B0 -> 0F1"), **size)
    assert free.step_time_s is not None
    assert chained.step_time_s is not None
    assert chained.step_time_s > 1.02 * free.step_time_s


def test_a_dependency_on_one_rank_needs_no_message() -> None:
    plain, chained = (parse(rows, 2, 2, 2).orders() for rows in (PLAIN, (*PLAIN, "0F0 -> 0B1")))
    assert chained == plain


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(1, 3), st.data())
def test_signals_are_on_both_sides_in_the_same_order(ranks: int, rounds: int, data: st.DataObject) -> None:
    """Of any dependencies that go with GPipe's order: every pass of a micro-batch after one of an earlier one."""
    micros = ranks * rounds
    rows = [
        ",".join([f"{rank}F{micro}" for micro in range(micros)] + [f"{rank}B{micro}" for micro in range(micros)])
        for rank in range(ranks)
    ]
    stage, micro = st.integers(0, ranks - 1), st.integers(0, micros - 1)
    drawn = data.draw(st.lists(st.tuples(stage, micro, stage, micro), max_size=6, unique=True))
    arrows = [f"{a}F{i} -> {b}F{j}" for a, i, b, j in drawn if i < j]
    steps = parse((*rows, *arrows), ranks, ranks, micros).orders()
    for first in range(ranks):
        for second in range(ranks):
            ends = [
                [(one.signal.number, one.signal.outgoing) for one in steps[rank]
                 if one.kind == SIGNAL and one.signal and one.signal.peer == peer]
                for rank, peer in ((first, second), (second, first))
            ]  # fmt: skip
            assert ends[0] == [(number, not outgoing) for number, outgoing in ends[1]] or first == second


def test_a_signal_reaches_a_rank_that_is_no_neighbour() -> None:
    """Ranks 1 and 3 of four have a group of their own, and the pass waits for the last stage's backward pass."""
    rows = [f"{rank}F0,{rank}F1,{rank}B0,{rank}B1" for rank in range(3)] + ["3F0,3B0,3F1,3B1"]
    size: dict[str, Any] = {"schedule": "own", "pipeline": 4, "global_batch": 2}
    free, chained = simulated(rows, **size), simulated([*rows, "3B0 -> 1F1"], **size)
    assert free.step_time_s is not None
    assert chained.step_time_s is not None
    assert chained.step_time_s > 1.02 * free.step_time_s


def test_rows_are_made_by_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the numbers of ranks, stages and micro-batches."""
    (tmp_path / "my_orders.py").write_text(
        "def gpipe(ranks, stages, micros):\n"
        "    order = lambda kind, rank: [f'{rank}{kind}{micro}' for micro in range(micros)]\n"
        "    return [','.join(order('F', rank) + order('B', rank)) for rank in range(ranks)]\n"
        "def none(ranks, stages, micros):\n    return []\n"
        "def wrong(ranks, stages, micros):\n    return [stages / 0]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = {}
    for name in ("gpipe", "none", "wrong", "lost"):
        plan = Plan(sequence=16, pipeline=2, global_batch=2, rank_passes=read_passes(f"my_orders:{name}"))
        try:
            rows[name] = with_passes(plan, 2).rank_passes
        except InputError as error:
            rows[name] = (str(error),)
    assert rows == {
        "gpipe": ("0F0,0F1,0B0,0B1", "1F0,1F1,1B0,1B1"),
        "none": ("the schedule my_orders:none returned no rows of passes such as '0F0,0F1,0B0,0B1'; correct it",),
        "wrong": (
            "the schedule my_orders:wrong raised ZeroDivisionError for 2 ranks, 2 stages and 2 micro-batches: "
            "division by zero; correct it",
        ),
        "lost": (
            "the schedule my_orders:lost cannot be loaded: module 'my_orders' has no attribute 'lost'; correct its "
            "name or its package",
        ),
    }
