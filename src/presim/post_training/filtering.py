"""Rounds of generation until enough prompt groups pass a filter, as DAPO's dynamic sampling has them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.post_training.response_lengths import draw_groups
from presim.post_training.rl_job import RlJob, SampleBatch
from presim.post_training.rollout import Responses, Window, generate

_MOST_ROUNDS = 100


@dataclasses.dataclass(frozen=True)
class Rounds:
    """What was generated for a step."""

    windows: tuple[Window, ...]
    starts_s: tuple[float, ...]  # of each round, from the step's start
    responses: Responses  # of the groups that are trained on
    end_s: NDArray[np.float64]  # of each of them

    @property
    def seconds(self) -> float:
        """From the first token to the end of the last round."""
        return self.starts_s[-1] + float(self.windows[-1].end_s.max())

    @property
    def generated_tokens(self) -> int:
        """Of all rounds."""
        return sum(int(window.responses.length.sum()) for window in self.windows)


def check(batch: SampleBatch) -> None:
    """Raise InputError if a step would take too many rounds."""
    expected = batch.prompts / max(batch.kept_share * batch.round_prompts, 1e-12)
    if expected > _MOST_ROUNDS / 2:
        raise InputError(
            f"with {batch.kept_share:.3g} of {batch.round_prompts:,} prompts kept, {batch.prompts:,} take about "
            f"{math.ceil(expected):,} rounds of generation; raise --keep or --round-prompts"
        )


def draw(batch: SampleBatch, first_group: int, groups: int, rng: np.random.Generator) -> Responses:
    """Responses to so many new prompts; what environments answer counts as prompt."""
    count = groups * batch.samples
    return Responses(
        np.repeat(np.arange(first_group, first_group + groups), batch.samples),
        np.repeat(batch.prompt.draw(rng, groups), batch.samples) + batch.turns.read_tokens,
        draw_groups(batch.response, groups, batch.samples, batch.group_share, rng),
        np.zeros(count, np.int64),
    )


def generate_rounds(job: RlJob, first_group: int, seed: int, rng: np.random.Generator) -> Rounds:
    """Generate rounds of prompts, one after the other, until enough groups pass; the first of these are kept."""
    batch = job.batch
    windows: list[Window] = []
    starts_s, parts, end_times = [0.0], [], []
    missing = batch.prompts
    while missing > 0:
        if len(windows) == _MOST_ROUNDS:
            raise InputError(
                f"{_MOST_ROUNDS} rounds of generation kept too few prompts; raise --keep or --round-prompts"
            )
        start_group = first_group + len(windows) * batch.round_prompts
        responses = draw(batch, start_group, batch.round_prompts, rng)
        window = generate(responses, job, seed + len(windows))
        passing = np.flatnonzero(rng.random(batch.round_prompts) < batch.kept_share)[:missing]
        is_kept = np.isin(responses.group - start_group, passing)
        windows.append(window)
        parts.append(responses.part(is_kept))
        end_times.append(starts_s[-1] + window.end_s[is_kept])
        starts_s.append(starts_s[-1] + float(window.end_s.max()))
        missing -= len(passing)
    trained = parts[0]
    for part in parts[1:]:
        trained = trained.with_added(part)
    return Rounds(tuple(windows), tuple(starts_s[:-1]), trained, np.concatenate(end_times))
