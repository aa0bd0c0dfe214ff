"""Orders of a pipeline's passes: each pass once, each message on both sides, in the same order."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.compose.orders import orders
from presim.compose.pass_orders import dual_pipe_v
from presim.compose.steps import BACKWARD, EXCHANGE, FORWARD, INPUT, RECEIVE, SEND, WAIT, WEIGHT, Step, place
from support import emulated

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipev")
SHAPES = st.tuples(st.integers(2, 6), st.integers(1, 3), st.integers(1, 4))


def chosen(schedule: str, ranks: int, chunks: int, rounds: int) -> tuple[tuple[Step, ...], ...]:
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
                assert place(schedule, shape[0], step.stage) == rank
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
                other = place(schedule, ranks, message.neighbour)
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
            elif step.kind == FORWARD and step.stage > 0 and place(schedule, ranks, step.stage - 1) != rank:
                assert (step.stage, step.micro, False) in waited
            elif (
                step.kind in (BACKWARD, INPUT) and step.stage < last and place(schedule, ranks, step.stage + 1) != rank
            ):
                assert (step.stage, step.micro, True) in waited


@dataclasses.dataclass(frozen=True)
class Run:
    """What running the passes of all ranks gave."""

    end: int
    busy: tuple[int, ...]  # of each rank
    most: tuple[int, ...]  # micro-batches of a stage that a rank has activations of, at most


def run(passes: Sequence[Sequence[tuple[Step, ...]]], times: Mapping[str, int]) -> Run:
    """Steps that form a tuple run at once, for the sum of their times; messages take no time."""
    done: dict[tuple[bool, int, int], int] = {}
    ranks, last = len(passes), 2 * len(passes) - 1
    at, clock, busy, live, most = ([0] * ranks for _ in range(5))
    while any(place < len(own) for place, own in zip(at, passes)):
        before = list(at)
        for rank, own in enumerate(passes):
            if at[rank] == len(own):
                continue
            steps = own[at[rank]]
            needs = [(False, one.stage - 1, one.micro) for one in steps if one.kind == FORWARD and one.stage]
            backward = [one for one in steps if one.kind in (BACKWARD, INPUT) and one.stage < last]
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


def overlapped(rank: int, ranks: int, count: int) -> list[tuple[Step, ...]]:
    """Forward and backward passes that DeepSeek overlaps are one; the first pair at the turn is not overlapped."""
    found: list[tuple[Step, ...]] = []
    apart = rank == ranks - 1
    for step in dual_pipe_v(rank, ranks, count):
        if step.kind == BACKWARD and found[-1][-1].kind == FORWARD and not apart:
            found[-1] = (*found[-1], step)
            continue
        apart = apart and step.kind != BACKWARD
        found.append((step,))
    return found


@given(st.integers(1, 6), st.integers(0, 9))
def test_dual_pipe_v_ends_and_holds_one_micro_batch_more_than_it_has_stages(ranks: int, more: int) -> None:
    """Published of DualPipe with PP stages: PP + 1 activations, and a bubble of (PP/2 - 1)(F&B + B - 3W)."""
    stages = 2 * ranks
    passes = [overlapped(rank, ranks, stages + more) for rank in range(ranks)]
    found = run(passes, {FORWARD: 1, INPUT: 1, WEIGHT: 1, BACKWARD: 2})
    assert found.most == (stages + 1,) * ranks
    assert {found.end - busy for busy in found.busy} == {(ranks - 1) * (3 + 2 - 3)}


@given(st.integers(1, 6), st.integers(0, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_dual_pipe_v_ends_with_passes_of_any_length(ranks: int, more: int, f: int, i: int, w: int) -> None:
    passes = [[(step,) for step in dual_pipe_v(rank, ranks, 2 * ranks + more)] for rank in range(ranks)]
    found = run(passes, {FORWARD: f, INPUT: i, WEIGHT: w, BACKWARD: i + w})
    assert found.busy == ((2 * ranks + more) * 2 * (f + i + w),) * ranks
    assert max(found.most) <= 2 * ranks + 1


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
