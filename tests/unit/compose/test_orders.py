"""Orders of a pipeline's passes: each pass once, each message on both sides, in the same order."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from presim.compose.orders import BACKWARD, EXCHANGE, FORWARD, INPUT, RECEIVE, SEND, WAIT, WEIGHT, Step, orders

SHAPES = st.tuples(st.integers(2, 6), st.integers(1, 3), st.integers(1, 4))


def chosen(schedule: str, ranks: int, chunks: int, rounds: int) -> tuple[tuple[Step, ...], ...]:
    chunks = 1 if schedule in ("gpipe", "1f1b") else chunks
    return orders(schedule, ranks, chunks, rounds * ranks)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(("gpipe", "1f1b", "interleaved", "zero-bubble")), SHAPES)
def test_every_stage_runs_every_micro_batch_once_and_forward_first(schedule: str, shape: tuple[int, int, int]) -> None:
    """With zero-bubble schedules, gradients of weights come once as well, after those of inputs."""
    for rank, steps in enumerate(chosen(schedule, *shape)):
        seen: dict[tuple[int, int], list[str]] = defaultdict(list)
        for step in steps:
            if step.kind in (FORWARD, BACKWARD, INPUT, WEIGHT):
                assert step.stage % shape[0] == rank
                seen[step.stage, step.micro].append(step.kind)
        expected = [FORWARD, INPUT, WEIGHT] if schedule == "zero-bubble" else [FORWARD, BACKWARD]
        assert all(kinds == expected for kinds in seen.values())
        assert len(seen) == shape[2] * shape[0] * (1 if schedule in ("gpipe", "1f1b") else shape[1])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(("gpipe", "1f1b", "interleaved", "zero-bubble")), SHAPES)
def test_messages_meet_in_the_same_order(schedule: str, shape: tuple[int, int, int]) -> None:
    """Between two ranks, what one sends is what the other receives, message by message."""
    ranks = shape[0]
    sent, came = defaultdict(list), defaultdict(list)
    for rank, steps in enumerate(chosen(schedule, *shape)):
        for step in steps:
            if step.kind not in (SEND, RECEIVE, EXCHANGE):
                continue
            for message in step.messages:
                other = message.neighbour % ranks
                boundary = (min(message.stage, message.neighbour), message.micro, message.backward)
                (sent if message.outgoing else came)[(rank, other) if message.outgoing else (other, rank)].append(
                    boundary
                )
    assert sent == came


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(("gpipe", "1f1b", "interleaved", "zero-bubble")), SHAPES)
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
            elif step.kind == FORWARD and step.stage > 0 and (step.stage - 1) % ranks != rank:
                assert (step.stage, step.micro, False) in waited
            elif step.kind in (BACKWARD, INPUT) and step.stage < last and (step.stage + 1) % ranks != rank:
                assert (step.stage, step.micro, True) in waited
