"""Pipeline schedules: the order of forward and backward passes on each rank, and the messages between stages.

The rules are those of `torch.distributed.pipelining.schedules`, which torchtitan uses. A step is identified by stage
and micro-batch; `rank_of_stage` gives the rank of a stage. 1F1B and GPipe exchange messages as PyTorch's loops for them
do. All other schedules follow PyTorch's runtime for action lists: a receive is posted when its sender sends.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

from presim.composition.pass_dependencies import Dependencies, Dependency, is_ready
from presim.composition.pass_orders import dual_pipe, dual_pipe_v, in_pairs, interleaved_passes
from presim.composition.pipeline_steps import (
    BACKWARD,
    EXCHANGE,
    FORWARD,
    RECEIVE,
    SEND,
    WAIT,
    WEIGHT,
    Message,
    PipelineStep,
    rank_of_stage,
)


@functools.lru_cache(maxsize=16)  # the order of 16 ranks with 1,024 passes takes 30 MB
def orders(
    schedule: str, ranks: int, chunks: int, micros: int, left_out: int = 0, *, side_by_side: bool = False
) -> tuple[tuple[PipelineStep, ...], ...]:
    """The steps of each rank.

    ``left_out``: number of omitted micro-batches, whose messages the last waits also cover. ``side_by_side``: forward
    passes of DualPipe run beside the backward passes that follow them.
    """
    if ranks == 1 and chunks == 1:
        return (
            tuple(
                step
                for micro in range(micros)
                for step in (PipelineStep(FORWARD, 0, micro), PipelineStep(BACKWARD, 0, micro))
            ),
        )
    if schedule == "gpipe":
        return tuple(tuple(_gpipe(rank, ranks, micros)) for rank in range(ranks))
    if schedule == "1f1b":
        return tuple(tuple(_one_forward_one_backward(rank, ranks, micros)) for rank in range(ranks))
    if schedule == "dualpipe":
        directions = [dual_pipe(rank, ranks, micros) for rank in range(ranks)]
        if side_by_side:
            middle = (ranks // 2 - 1, ranks // 2)
            directions = [in_pairs(steps, at_turn=rank in middle) for rank, steps in enumerate(directions)]
        return with_messages(directions, ranks, functools.partial(rank_of_stage, schedule, ranks))
    if schedule == "dualpipev":
        v_passes = [dual_pipe_v(rank, ranks, micros) for rank in range(ranks)]
        if side_by_side:
            v_passes = [in_pairs(steps, at_turn=rank == ranks - 1) for rank, steps in enumerate(v_passes)]
        return with_messages(v_passes, 2 * ranks, functools.partial(rank_of_stage, schedule, ranks))
    passes, all_passes = (
        [interleaved_passes(rank, ranks, chunks, count, schedule == "zero-bubble") for rank in range(ranks)]
        for count in (micros, micros + left_out)
    )
    rank_steps = with_messages(passes, ranks * chunks, functools.partial(rank_of_stage, schedule, ranks))
    return _with_all_waits(rank_steps, all_passes, ranks, ranks * chunks, left_out) if left_out else rank_steps


def _received(stage: int, micro: int, stages: int, backward: bool) -> tuple[Message, ...]:
    has_other = stage % stages < stages - 1 if backward else stage % stages > 0
    return (Message(stage, micro, backward, False),) if has_other else ()


def _sent(stage: int, micro: int, stages: int, backward: bool) -> tuple[Message, ...]:
    has_other = stage % stages > 0 if backward else stage % stages < stages - 1
    return (Message(stage, micro, backward, True),) if has_other else ()


def _begin(messages: tuple[Message, ...], *, wait: bool) -> Iterator[PipelineStep]:
    """Start messages; sends and receives together form one exchange."""
    if messages:
        kinds = {message.outgoing for message in messages}
        kind = EXCHANGE if len(kinds) > 1 else SEND if True in kinds else RECEIVE
        yield PipelineStep(kind, messages[0].stage, messages[0].micro, messages)
        if wait:
            yield PipelineStep(WAIT, messages[0].stage, messages[0].micro, messages)


def _gpipe(rank: int, stages: int, micros: int) -> Iterator[PipelineStep]:
    for backward in (False, True):
        sent: list[Message] = []
        for micro in range(micros):
            yield from _begin(_received(rank, micro, stages, backward), wait=True)
            yield PipelineStep(BACKWARD if backward else FORWARD, rank, micro)
            leaving = _sent(rank, micro, stages, backward)
            yield from _begin(leaving, wait=False)
            sent += leaving
        for message in sent:
            yield PipelineStep(WAIT, rank, message.micro, (message,))


def _one_forward_one_backward(rank: int, stages: int, micros: int) -> Iterator[PipelineStep]:
    ahead = min(micros, stages - rank)
    open_: tuple[Message, ...] = ()  # sent, not yet waited for
    for micro in range(ahead):
        yield from _begin(_received(rank, micro, stages, False), wait=True)
        yield PipelineStep(FORWARD, rank, micro)
        yield from (PipelineStep(WAIT, rank, message.micro, (message,)) for message in open_)
        open_ = _sent(rank, micro, stages, False) if micro < ahead - 1 else ()
        yield from _begin(open_, wait=False)
    leaving = _sent(rank, ahead - 1, stages, False)
    forward, backward = ahead, 0
    while True:
        yield from _begin((*leaving, *_received(rank, backward, stages, True)), wait=True)
        yield PipelineStep(BACKWARD, rank, backward)
        leaving = _sent(rank, backward, stages, True)
        backward += 1
        if forward == micros:
            break
        yield from _begin((*leaving, *_received(rank, forward, stages, False)), wait=True)
        yield PipelineStep(FORWARD, rank, forward)
        leaving = _sent(rank, forward, stages, False)
        forward += 1
    yield from _begin(leaving, wait=False)
    for micro in range(backward, micros):
        yield from _begin(_received(rank, micro, stages, True), wait=True)
        yield PipelineStep(BACKWARD, rank, micro)
        yield from (PipelineStep(WAIT, rank, message.micro, (message,)) for message in leaving)
        leaving = _sent(rank, micro, stages, True)
        yield from _begin(leaving, wait=False)
    yield from (PipelineStep(WAIT, rank, message.micro, (message,)) for message in leaving)


def with_messages(
    passes: Sequence[Sequence[PipelineStep | None]],
    stages: int,
    rank_with: Callable[[int], int],
    dependencies: Sequence[Dependency] = (),
) -> tuple[tuple[PipelineStep, ...], ...]:
    """Insert messages: both sides start them when the sender has the tensor; a pass waits for its inputs.

    ``stages``: those of one direction; stages of the other direction are numbered after them. ``rank_with``: the rank
    of a stage. ``dependencies``: further passes that have to end first.

    Raises:
        ValueError: every rank waits for another.
    """
    signals = Dependencies(dependencies, rank_with)
    rank_steps: list[list[PipelineStep]] = [[] for _ in passes]
    sent_messages: list[list[Message]] = [[] for _ in passes]
    arrivals: set[tuple[int, int, bool]] = set()  # (stage, micro, is a gradient)
    num_started = [0] * len(passes)
    while any(started < len(rank_passes) for started, rank_passes in zip(num_started, passes)):
        progress = False
        for rank, rank_passes in enumerate(passes):
            if num_started[rank] >= len(rank_passes):
                continue
            step = rank_passes[num_started[rank]]
            parts = () if step is None else step.passes
            if not all(is_ready(part, _has_input(part, stages, arrivals), signals) for part in parts):
                continue
            num_started[rank] += 1
            progress = True
            for part in parts:
                rank_steps[rank] += [*_input_waits(part, rank, stages, rank_with), *signals.waits(part)]
            rank_steps[rank] += [] if step is None else [step]
            for part in parts:
                for message in _messages_of(part, stages):
                    other = rank_with(message.neighbour)
                    arrivals.add((message.neighbour, part.micro, message.backward))
                    if other != rank:
                        rank_steps[rank] += _begin((message,), wait=False)
                        sent_messages[rank].append(message)
                        arriving = Message(message.neighbour, part.micro, message.backward, False)
                        rank_steps[other] += _begin((arriving,), wait=False)
                for side, signal in signals.end(part):
                    rank_steps[side].append(signal)
        if not progress:
            raise ValueError("deadlock in the schedule: every rank waits for another")
    for rank, messages in enumerate(sent_messages):
        rank_steps[rank] += [PipelineStep(WAIT, message.stage, message.micro, (message,)) for message in messages]
    return tuple(map(tuple, rank_steps))


def _messages_of(step: PipelineStep, stages: int) -> tuple[Message, ...]:
    """What a pass sends; gradients of weights leave no rank."""
    return () if step.kind == WEIGHT else _sent(step.stage, step.micro, stages, step.kind != FORWARD)


def _input_waits(step: PipelineStep, rank: int, stages: int, rank_with: Callable[[int], int]) -> Iterator[PipelineStep]:
    """The wait for a pass's input, if it comes from another rank."""
    needed = () if step.kind == WEIGHT else _received(step.stage, step.micro, stages, step.kind != FORWARD)
    if needed and rank_with(needed[0].neighbour) != rank:
        yield PipelineStep(WAIT, step.stage, step.micro, needed)


def _with_all_waits(
    rank_steps: tuple[tuple[PipelineStep, ...], ...],
    all_passes: list[list[PipelineStep | None]],
    ranks: int,
    stages: int,
    left_out: int,
) -> tuple[tuple[PipelineStep, ...], ...]:
    """End steps with a wait for each message of ``all_passes``; an omitted message maps to the first of its stage."""
    longer = []
    for rank, (steps, passes) in enumerate(zip(rank_steps, all_passes)):
        sent = [
            message
            for step in passes
            if step is not None and step.kind != WEIGHT
            for message in _sent(step.stage, step.micro, stages, step.kind != FORWARD)
            if message.neighbour % ranks != rank
        ]
        count = sum(len(step.messages) for step in steps if step.kind == SEND)
        waits = [
            PipelineStep(
                WAIT,
                message.stage,
                message.micro,
                (dataclasses.replace(message, micro=max(0, message.micro - left_out)),),
                message,
            )
            for message in sent
        ]
        longer.append((*steps[: len(steps) - count], *waits))
    return tuple(longer)


def _has_input(step: PipelineStep, stages: int, arrivals: set[tuple[int, int, bool]]) -> bool:
    backward = step.kind != FORWARD
    return not _received(step.stage, step.micro, stages, backward) or (step.stage, step.micro, backward) in arrivals
