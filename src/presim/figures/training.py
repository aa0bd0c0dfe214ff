"""The figures of a whole training."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.says import says

SCHEMA_VERSION = 1


class Assumption(msgspec.Struct, frozen=True):
    """A figure that was not predicted, and where it comes from."""

    name: Annotated[str, says("What it is.")]
    value: Annotated[str, says("The figure with its unit.")]
    source: Annotated[str, says("given, a publication, or a default nobody measured here.")]


class Spread(msgspec.Struct, frozen=True):
    """A figure over simulated trainings."""

    mean: Annotated[float, says("Mean.")]
    p10: Annotated[float, says("10th percentile.")]
    p50: Annotated[float, says("Median.")]
    p90: Annotated[float, says("90th percentile.")]


class Projection(msgspec.Struct, frozen=True):
    """The answer of `presim training`."""

    schema_version: Annotated[int, says("Version of this schema.")]
    script: Annotated[str, says("The program of the step.")]
    cluster: Annotated[str, says("Nodes, GPUs in each, and the GPU's name.")]
    gpus: Annotated[int, says("GPUs that train.")]
    step_time_s: Annotated[float, says("Seconds of a step, jitter included.")]
    steps: Annotated[int, says("Steps of the token budget.")]
    tokens: Annotated[float, says("The token budget.")]
    work_days: Annotated[float, says("Days of steps alone, without failures and checkpoints.")]
    days: Annotated[Spread, says("Days in all, over the simulated trainings at the predicted step time.")]
    days_low: Annotated[float, says("With the step time's lower end and the most reliable published cluster.")]
    days_high: Annotated[float, says("With the step time's upper end and the least reliable published cluster.")]
    goodput: Annotated[float, says("Share of the time in which steps advance the training, mean.")]
    spent_days: Annotated[dict[str, float], says("Mean days by what they go to; they add up to the mean of days.")]
    failures: Annotated[float, says("Interruptions, mean.")]
    mtbf_hours: Annotated[float, says("Mean hours between interruptions of the whole cluster.")]
    interval_s: Annotated[float, says("Seconds of work between checkpoints.")]
    best_interval_s: Annotated[float, says("The interval with the least expected time.")]
    young_interval_s: Annotated[float, says("Young's estimate of it.")]
    daly_interval_s: Annotated[float, says("Daly's estimate of it.")]
    closed_form_days: Annotated[float, says("Expected days by Daly's equation, with spare nodes always there.")]
    curve: Annotated[list[tuple[float, float]], says("Interval in seconds, expected goodput by Daly's equation.")]
    gpu_hours: Annotated[float, says("GPU hours, mean, without spare nodes.")]
    money: Annotated[float | None, says("GPU hours, spare nodes included, times the price; null without a price.")]
    energy_MWh: Annotated[float, says("Energy of the nodes, mean; an estimate.")]
    energy_low_MWh: Annotated[float, says("If only the GPUs drew power, at their limit.")]
    energy_high_MWh: Annotated[float, says("If nodes drew the highest share that was measured.")]
    energy_money: Annotated[float | None, says("Energy times its price; null without a price.")]
    assumptions: Annotated[list[Assumption], says("Figures that were not predicted, with their sources.")]
    not_modelled: Annotated[list[str], says("What the figures leave out.")]
