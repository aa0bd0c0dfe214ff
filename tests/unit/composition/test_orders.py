"""Orders of a pipeline's passes: each pass once, each message on both sides, in the same order."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.composition.orders import orders
from presim.composition.pass_orders import dual_pipe, dual_pipe_v, in_pairs
from presim.composition.pipeline_steps import (
    BACKWARD,
    EXCHANGE,
    FORWARD,
    INPUT,
    RECEIVE,
    SEND,
    WAIT,
    WEIGHT,
    PipelineStep,
    rank_of_stage,
)
from support import emulated

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipev")
SHAPES = st.tuples(st.integers(2, 6), st.integers(1, 3), st.integers(1, 4))


def chosen(schedule: str, ranks: int, chunks: int, rounds: int) -> tuple[tuple[PipelineStep, ...], ...]:
    chunks = 1 if schedule in ("gpipe", "1f1b") else 2 if schedule == "dualpipev" else chunks
    return orders(schedule, ranks, chunks, micros(schedule, ranks, rounds))


def micros(schedule: str, ranks: int, rounds: int) -> int:
    """DualPipeV has a micro-batch for each of its stages, and any number beyond."""
    return 2 * ranks + rounds if schedule == "dualpipev" else rounds * ranks


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SCHEDULES), SHAPES)
def test_every_stage_runs_every_micro_batch_once_and_forward_first(schedule: str, shape: tuple[int, int, int]) -> None:
    """With zero-bubble schedules, gradients of weights come once as well, after those of inputs."""
    for rank, steps in enumerate(chosen(schedule, *shape)):
        seen: dict[tuple[int, int], list[str]] = defaultdict(list)
        for step in steps:
            if step.kind in (FORWARD, BACKWARD, INPUT, WEIGHT):
                assert rank_of_stage(schedule, shape[0], step.stage) == rank
                seen[step.stage, step.micro].append(step.kind)
        split, whole = [FORWARD, INPUT, WEIGHT], [FORWARD, BACKWARD]
        expected = {"zero-bubble": (split,), "dualpipev": (split, whole)}.get(schedule, (whole,))
        assert all(kinds in expected for kinds in seen.values())
        chunks = {"interleaved": shape[1], "zero-bubble": shape[1], "dualpipev": 2}.get(schedule, 1)
        assert len(seen) == micros(schedule, shape[0], shape[2]) * chunks


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SCHEDULES), SHAPES)
def test_messages_meet_in_the_same_order(schedule: str, shape: tuple[int, int, int]) -> None:
    """Between two ranks, what one sends is what the other receives, message by message."""
    ranks = shape[0]
    sent, came = defaultdict(list), defaultdict(list)
    for rank, steps in enumerate(chosen(schedule, *shape)):
        for step in steps:
            if step.kind not in (SEND, RECEIVE, EXCHANGE):
                continue
            for message in step.messages:
                other = rank_of_stage(schedule, ranks, message.neighbour)
                boundary = (min(message.stage, message.neighbour), message.micro, message.backward)
                (sent if message.outgoing else came)[(rank, other) if message.outgoing else (other, rank)].append(
                    boundary
                )
    assert sent == came


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SCHEDULES), SHAPES)
def test_nothing_is_used_before_it_has_come(schedule: str, shape: tuple[int, int, int]) -> None:
    """A pass follows the wait for its message, and every wait the message's begin."""
    ranks, last = shape[0], None
    for rank, steps in enumerate(chosen(schedule, *shape)):
        begun, waited = set(), set()
        last = max(step.stage for own in chosen(schedule, *shape) for step in own)
        for step in steps:
            if step.kind in (SEND, RECEIVE, EXCHANGE):
                begun |= set(step.messages)
            elif step.kind == WAIT:
                assert set(step.messages) <= begun
                waited |= {(m.stage, m.micro, m.backward) for m in step.messages if not m.outgoing}
            elif step.kind == FORWARD and step.stage > 0 and rank_of_stage(schedule, ranks, step.stage - 1) != rank:
                assert (step.stage, step.micro, False) in waited
            elif (
                step.kind in (BACKWARD, INPUT)
                and step.stage < last
                and rank_of_stage(schedule, ranks, step.stage + 1) != rank
            ):
                assert (step.stage, step.micro, True) in waited


@dataclasses.dataclass(frozen=True)
class Run:
    """What running the passes of all ranks gave."""

    end: int
    busy: tuple[int, ...]  # of each rank
    most: tuple[int, ...]  # micro-batches of a stage that a rank has activations of, at most


def run(passes: Sequence[Sequence[tuple[PipelineStep, ...]]], times: Mapping[str, int], stages: int) -> Run:
    """Steps that form a tuple run at once, for the sum of their times; messages take no time.

    ``stages``: those that a micro-batch passes; the others are copies of them.
    """
    done: dict[tuple[bool, int, int], int] = {}
    ranks, last = len(passes), stages - 1
    at, clock, busy, live, most = ([0] * ranks for _ in range(5))
    while any(place < len(own) for place, own in zip(at, passes)):
        before = list(at)
        for rank, own in enumerate(passes):
            if at[rank] == len(own):
                continue
            steps = own[at[rank]]
            needs = [(False, one.stage - 1, one.micro) for one in steps if one.kind == FORWARD and one.stage % stages]
            backward = [one for one in steps if one.kind in (BACKWARD, INPUT) and one.stage % stages < last]
            needs += [(True, one.stage + 1, one.micro) for one in backward]
            if not done.keys() >= set(needs):
                continue
            took = sum(times[one.kind] for one in steps)
            clock[rank] = max(clock[rank], *(done[need] for need in needs), 0) + took
            busy[rank] += took
            done |= {(one.kind != FORWARD, one.stage, one.micro): clock[rank] for one in steps if one.kind != WEIGHT}
            live[rank] += sum(one.kind == FORWARD for one in steps)
            most[rank] = max(most[rank], live[rank])
            live[rank] -= sum(one.kind in (BACKWARD, WEIGHT) for one in steps)
            at[rank] += 1
        assert at != before, "every rank waits for another"
    return Run(max(clock), tuple(busy), tuple(most))


def overlapped(steps: Sequence[PipelineStep], at_turn: bool) -> list[tuple[PipelineStep, ...]]:
    """Forward and backward passes that run side by side are one."""
    return [step.passes for step in in_pairs(steps, at_turn=at_turn)]


@given(st.integers(1, 6), st.integers(0, 9))
def test_dual_pipe_v_ends_and_holds_one_micro_batch_more_than_it_has_stages(ranks: int, more: int) -> None:
    """Published of DualPipe with PP stages: PP + 1 activations, and a bubble of (PP/2 - 1)(F&B + B - 3W)."""
    stages = 2 * ranks
    passes = [overlapped(dual_pipe_v(rank, ranks, stages + more), rank == ranks - 1) for rank in range(ranks)]
    found = run(passes, {FORWARD: 1, INPUT: 1, WEIGHT: 1, BACKWARD: 2}, stages)
    assert found.most == (stages + 1,) * ranks
    assert {found.end - busy for busy in found.busy} == {(ranks - 1) * (3 + 2 - 3)}


@given(st.integers(1, 6), st.integers(0, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_dual_pipe_v_ends_with_passes_of_any_length(ranks: int, more: int, f: int, i: int, w: int) -> None:
    passes = [[(step,) for step in dual_pipe_v(rank, ranks, 2 * ranks + more)] for rank in range(ranks)]
    found = run(passes, {FORWARD: f, INPUT: i, WEIGHT: w, BACKWARD: i + w}, 2 * ranks)
    assert found.busy == ((2 * ranks + more) * 2 * (f + i + w),) * ranks
    assert max(found.most) <= 2 * ranks + 1


@given(st.integers(1, 6), st.integers(0, 9))
def test_dual_pipe_runs_half_of_the_micro_batches_from_each_end(half: int, more: int) -> None:
    """Published of DualPipe with PP ranks: PP + 1 activations on each, and a bubble of (PP/2 - 1)(F&B + B - 3W)."""
    ranks, each = 2 * half, 2 * half + more
    own = [dual_pipe(rank, ranks, 2 * each) for rank in range(ranks)]
    for rank, steps in enumerate(own):
        copy = 2 * ranks - 1 - rank
        assert {rank_of_stage("dualpipe", ranks, step.stage) for step in steps} == {rank}
        forwards = [(step.stage, step.micro) for step in steps if step.kind == FORWARD]
        expected = [(rank, micro) for micro in range(each)] + [(copy, each + micro) for micro in range(each)]
        assert sorted(forwards) == sorted(expected)
        backwards = [(step.stage, step.micro) for step in steps if step.kind in (BACKWARD, INPUT)]
        assert sorted(backwards) == sorted(expected)
        assert sum(step.kind == INPUT for step in steps) == sum(step.kind == WEIGHT for step in steps)
    turns = (half - 1, half)
    passes = [overlapped(steps, rank in turns) for rank, steps in enumerate(own)]
    found = run(passes, {FORWARD: 1, INPUT: 1, WEIGHT: 1, BACKWARD: 2}, ranks)
    assert found.most == (ranks + 1,) * ranks
    assert {found.end - busy for busy in found.busy} == {(half - 1) * (3 + 2 - 3)}


@given(st.sampled_from(["dualpipe", "dualpipev"]), st.integers(1, 4), st.integers(0, 5))
def test_passes_side_by_side_are_the_same_passes(schedule: str, half: int, more: int) -> None:
    """No rank waits for another in a circle, and a backward pass follows its own forward pass."""
    ranks, chunks = 2 * half, 1 if schedule == "dualpipe" else 2
    micros = 2 * (2 * half + more)
    alone, beside = (orders(schedule, ranks, chunks, micros, side_by_side=pairs) for pairs in (False, True))
    for in_turn, paired in zip(alone, beside):
        passes = [part for step in paired if step.kind in (FORWARD, BACKWARD, INPUT, WEIGHT) for part in step.passes]
        bare = [dataclasses.replace(part, partner=None) for part in passes]
        assert bare == [step for step in in_turn if step.kind in (FORWARD, BACKWARD, INPUT, WEIGHT)]
        assert any(step.partner for step in paired)
        begun: set[tuple[int, int]] = set()
        for step in paired:
            assert all((part.stage, part.micro) in begun for part in step.passes if part.kind in (BACKWARD, INPUT))
            begun |= {(step.stage, step.micro)} if step.kind == FORWARD else set()


def test_dual_pipe_starts_as_published_for_8_ranks_and_20_micro_batches() -> None:
    """The first ranks' warm-up: forward passes of the near direction, pairs of both, then split backward passes."""
    first, middle = dual_pipe(0, 8, 20), dual_pipe(3, 8, 20)
    near, far = (FORWARD, 0), (FORWARD, 15)  # stage 15 is the copy of stage 7
    assert [(step.kind, step.stage) for step in first[:8]] == [near] * 6 + [near, far]
    assert [(step.kind, step.stage) for step in first[8:17]] == [(INPUT, 15), (WEIGHT, 15), far] * 3
    assert [(step.kind, step.stage) for step in middle[:8]] == [(FORWARD, 3), (FORWARD, 12)] * 4
    mirrored = dual_pipe(7, 8, 20)
    assert [(one.kind, (one.stage + 8) % 16, (one.micro + 10) % 20) for one in mirrored] == [
        (one.kind, one.stage, one.micro) for one in first
    ]


@given(st.integers(1, 3), st.integers(0, 4))
def test_messages_of_both_directions_meet_in_the_same_order(half: int, more: int) -> None:
    ranks = 2 * half
    sent, came = defaultdict(list), defaultdict(list)
    for rank, steps in enumerate(orders("dualpipe", ranks, 1, 2 * (ranks + more))):
        for message in (one for step in steps if step.kind in (SEND, RECEIVE) for one in step.messages):
            other = rank_of_stage("dualpipe", ranks, message.neighbour)
            assert abs(other - rank) == 1
            what = (min(message.stage, message.neighbour), message.micro, message.backward)
            (sent if message.outgoing else came)[(rank, other) if message.outgoing else (other, rank)].append(what)
    assert sent == came
    assert sum(map(len, sent.values())) == 2 * (ranks - 1) * 2 * (ranks + more)


PROGRAM = """
import types
from torch.distributed.pipelining.schedules import ScheduleDualPipeV
kinds = {"FORWARD": "forward", "BACKWARD_INPUT": "input", "BACKWARD_WEIGHT": "weight", "FULL_BACKWARD": "backward"}
found = {}
for ranks in range(1, 7):
    for more in (0, 1, 5):
        size = types.SimpleNamespace(pp_group_size=ranks, _n_microbatches=2 * ranks + more)
        for rank in range(ranks):
            actions = ScheduleDualPipeV._calculate_single_rank_operations(size, rank)
            flat = [one for action in actions for one in (action.sub_actions or (action,))]
            steps = [(kinds[one.computation_type.name], one.stage_index, one.microbatch_index) for one in flat]
            found[f"{ranks} {2 * ranks + more} {rank}"] = steps
results["orders"] = found
"""


@pytest.mark.torch_cuda
def test_dual_pipe_v_has_the_order_of_pytorch(tmp_path: Path) -> None:
    found = emulated.run(PROGRAM, tmp_path).results["orders"]
    assert isinstance(found, dict)
    for name, steps in found.items():
        ranks, count, rank = map(int, name.split())
        mine = [[step.kind, step.stage, step.micro] for step in dual_pipe_v(rank, ranks, count)]
        assert mine == steps
