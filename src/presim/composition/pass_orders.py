"""Passes of one rank alone, in order, for schedules that run as PyTorch's lists of actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.composition.pipeline_steps import BACKWARD, FORWARD, INPUT, WEIGHT, PipelineStep


def interleaved_passes(rank: int, ranks: int, chunks: int, micros: int, split: bool) -> list[PipelineStep | None]:
    """Passes without messages; None where a rank idles in lockstep. ``split``: weight gradients run later."""
    rounds = max(1, micros // ranks)
    round_micros = micros // rounds
    ahead = (chunks - 1) * round_micros + (1 if split else 2) * (ranks - 1 - rank)
    ahead = min(ahead, micros * chunks)
    total = micros * chunks

    def forward_stage(step: int) -> int:
        return step // round_micros % chunks * ranks + rank

    def backward_stage(step: int) -> int:
        return (chunks - 1 - (step - ahead) // round_micros % chunks) * ranks + rank

    steps: list[PipelineStep | None] = [None] * rank
    done: dict[tuple[str, int], int] = {}

    def next_of(kind: str, stage: int) -> PipelineStep:
        micro = done.get((kind, stage), 0)
        done[kind, stage] = micro + 1
        return PipelineStep(kind, stage, micro)

    late: list[int] = []  # stages whose weight gradients are still to be computed
    delay = rank  # backward passes before the first weight gradients
    for step in range(total + ahead):
        if step < ahead:
            steps.append(next_of(FORWARD, forward_stage(step)))
            if step == ahead - 1:
                idle = ranks - rank - 1 if split else chunks * ranks + 2 * (ranks - 1 - rank) - (ahead + rank)
                steps += [None] * idle
            continue
        if step < total:
            steps.append(next_of(FORWARD, forward_stage(step)))
        elif not split:
            steps.append(None)
        stage = backward_stage(step)
        steps.append(next_of(INPUT if split else BACKWARD, stage))
        if split:
            late.append(stage)
            if step - ahead >= delay:
                steps.append(next_of(WEIGHT, late.pop(0)))
    steps += [next_of(WEIGHT, stage) for stage in late]
    return steps


def dual_pipe_v(rank: int, ranks: int, micros: int) -> list[PipelineStep]:
    """Both directions of DeepSeek's DualPipe on one rank, which has stage ``rank`` of a V and the one across.

    The eight phases and their lengths are published in deepseek-ai/DualPipe; PyTorch's ScheduleDualPipeV has the same.
    A forward and a backward pass that DeepSeek's kernels overlap run one after the other, as in PyTorch, unless
    `in_pairs` joins them.
    """
    down, up = rank, 2 * ranks - 1 - rank  # stages of the V's two sides
    after = ranks - 1 - rank  # ranks between this one and the turn
    done: dict[tuple[str, int], int] = {}
    late: list[PipelineStep] = []  # gradients of weights that are still to be made
    steps: list[PipelineStep] = []

    def run(kind: str, stage: int) -> None:
        counted = (FORWARD if kind == FORWARD else BACKWARD, stage)
        micro = done[counted] = done.get(counted, -1) + 1
        steps.append(PipelineStep(kind, stage, micro))
        if kind == INPUT:
            late.append(PipelineStep(WEIGHT, stage, micro))

    def make_weights() -> None:
        if late:
            steps.append(late.pop(0))

    for _ in range(2 * after):
        run(FORWARD, down)
    for _ in range(rank + 1):
        run(FORWARD, down)
        run(FORWARD, up)
    for _ in range(after):
        run(INPUT, up)
        make_weights()
        run(FORWARD, up)
    for _ in range(micros - 2 * ranks + rank + 1):
        run(FORWARD, down)
        run(BACKWARD, up)
        run(FORWARD, up)
        run(BACKWARD, down)
    for _ in range(after):
        run(BACKWARD, up)
        run(FORWARD, up)
        run(BACKWARD, down)
    for index in range(2 * (rank + 1)):
        run(INPUT if index >= _whole_backwards(rank) else BACKWARD, down if index % 2 else up)
    for _ in range(after):
        make_weights()
        run(INPUT, down)
    for _ in range(rank + 1):
        make_weights()
    return steps


def dual_pipe(rank: int, ranks: int, micros: int) -> list[PipelineStep]:
    """The passes of DeepSeek's DualPipe on one of an even number of ranks.

    Half of the micro-batches enter at the first rank, the others at the last. Rank r has stage r for the former, and
    for the latter a copy of stage ``ranks - 1 - r``, numbered ``2 * ranks - 1 - r``. The ranks of either half of the
    pipeline run the passes that DualPipeV has on half as many ranks, seen from their end of the pipeline.
    """
    near_stage, half = min(rank, ranks - 1 - rank), micros // 2
    is_first = rank < ranks // 2
    rank_stage, copy = rank, 2 * ranks - 1 - rank

    def seen_from_end(step: PipelineStep) -> PipelineStep:
        enters_here = step.stage == near_stage
        if enters_here == is_first:
            return PipelineStep(step.kind, rank_stage, step.micro)
        return PipelineStep(step.kind, copy, half + step.micro)

    return [seen_from_end(step) for step in dual_pipe_v(near_stage, ranks // 2, half)]


def _whole_backwards(rank: int) -> int:
    """How many backward passes of the last run up and down are whole: the first half, one more on even ranks."""
    return (rank + 1) // 2 * 2 + (1 - rank % 2)


def in_pairs(steps: Sequence[PipelineStep], *, at_turn: bool) -> list[PipelineStep]:
    """Join each forward pass of DualPipe and the whole backward pass that follows it.

    ``at_turn``: the rank has both stages of the turn (in DualPipe, of the middle). It runs its first pair one after the
    other, as DeepSeek's code does, so that other ranks get the activation earlier.
    """
    joined: list[PipelineStep] = []
    split_pairs = int(at_turn)
    following = iter([*steps[1:], None])
    for step in (remaining := iter(steps)):
        after = next(following)
        if after is None or step.kind != FORWARD or after.kind != BACKWARD:
            joined.append(step)
            continue
        next(remaining), next(following, None)
        joined += [step, after] if split_pairs else [dataclasses.replace(step, partner=after)]
        split_pairs = 0
    return joined
