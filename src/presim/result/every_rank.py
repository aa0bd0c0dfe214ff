"""The step time with every rank of the world simulated, and over draws of jitter."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc


class Straggler(msgspec.Struct, frozen=True):
    """A rank for which others wait."""

    rank: Annotated[int, doc("Its global rank.")]
    draws_share: Annotated[float, doc("Share of the draws in which it is the straggler.")]


class EveryRank(msgspec.Struct, frozen=True):
    """The step with every rank simulated (`--ranks-simulated all`), and what jitter does to it (`--jitter`)."""

    ranks_simulated: Annotated[int, doc("Ranks that were simulated, each by itself.")]
    step_time_s: Annotated[float, doc("Seconds of a steady step without jitter, until the last rank ends it.")]
    jitter: Annotated[
        dict[str, float],
        doc("Relative standard deviation, by what varies: hosts, gpus, links. Factors are lognormal with mean 1."),
    ]
    seed: Annotated[int, doc("Seed of the draws.")]
    step_times_s: Annotated[list[float], doc("Seconds of a steady step by draw; empty without jitter.")]
    mean_s: Annotated[float | None, doc("Mean over the draws; null without jitter.")]
    deviation_s: Annotated[float | None, doc("Standard deviation over the draws; null with fewer than two.")]
    p10_s: Annotated[float | None, doc("10th percentile, interpolated between draws; null without jitter.")]
    p50_s: Annotated[float | None, doc("Median; null without jitter.")]
    p90_s: Annotated[float | None, doc("90th percentile; null without jitter.")]
    stragglers: Annotated[list[Straggler], doc("The most frequent stragglers, at most eight.")]
