"""The figures of a whole training."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc
from presim.units import count, plain

SCHEMA_VERSION = 1


class Assumption(msgspec.Struct, frozen=True):
    """A figure that was not predicted, and where it comes from."""

    name: Annotated[str, doc("What it is.")]
    value: Annotated[str, doc("The figure with its unit.")]
    source: Annotated[str, doc("given, a publication, or a default nobody measured here.")]


class Spread(msgspec.Struct, frozen=True):
    """A figure over simulated trainings."""

    mean: Annotated[float, doc("Mean.")]
    p10: Annotated[float, doc("10th percentile.")]
    p50: Annotated[float, doc("Median.")]
    p90: Annotated[float, doc("90th percentile.")]


class Projection(msgspec.Struct, frozen=True):
    """The answer of `presim training`."""

    schema_version: Annotated[int, doc("Version of this schema.")]
    script: Annotated[str, doc("The program of the step.")]
    cluster: Annotated[str, doc("Nodes, GPUs in each, and the GPU's name.")]
    gpus: Annotated[int, doc("GPUs that train.")]
    step_time_s: Annotated[float, doc("Seconds of a step, jitter included.")]
    steps: Annotated[int, doc("Steps of the token budget.")]
    tokens: Annotated[float, doc("The token budget.")]
    work_days: Annotated[float, doc("Days of steps alone, without failures and checkpoints.")]
    days: Annotated[Spread, doc("Days in all, over the simulated trainings at the predicted step time.")]
    days_low: Annotated[float, doc("With the step time's lower end and the most reliable published cluster.")]
    days_high: Annotated[float, doc("With the step time's upper end and the least reliable published cluster.")]
    goodput: Annotated[float, doc("Share of the time in which steps advance the training, mean.")]
    spent_days: Annotated[dict[str, float], doc("Mean days by activity; they add up to the mean of days.")]
    failures: Annotated[float, doc("Interruptions, mean.")]
    mtbf_hours: Annotated[float, doc("Mean hours between interruptions of the whole cluster.")]
    interval_s: Annotated[float, doc("Seconds of work between checkpoints.")]
    best_interval_s: Annotated[float, doc("The interval with the least expected time.")]
    young_interval_s: Annotated[float, doc("Young's estimate of it.")]
    daly_interval_s: Annotated[float, doc("Daly's estimate of it.")]
    closed_form_days: Annotated[float, doc("Expected days by Daly's equation, with spare nodes always there.")]
    curve: Annotated[list[tuple[float, float]], doc("Interval in seconds, expected goodput by Daly's equation.")]
    gpu_hours: Annotated[float, doc("GPU hours, mean, without spare nodes.")]
    money: Annotated[float | None, doc("GPU hours, spare nodes included, times the price; null without a price.")]
    energy_MWh: Annotated[float, doc("Energy of the nodes, mean; an estimate.")]
    energy_low_MWh: Annotated[float, doc("Lower bound: GPUs only, with the lowest power of each class of work.")]
    energy_high_MWh: Annotated[float, doc("Upper bound: the highest known power of all parts.")]
    energy_money: Annotated[float | None, doc("Energy times its price; null without a price.")]
    assumptions: Annotated[list[Assumption], doc("Inputs that presim does not predict, with their sources.")]
    not_modelled: Annotated[list[str], doc("Effects that the figures leave out.")]
    partial: Annotated[bool, doc("Whether a signal ended it before all trainings were simulated.")] = False
    kind: Annotated[str, doc("Kind of the result.")] = "training"

    def __repr__(self) -> str:
        days = f"{plain(self.days.mean)} days ({plain(self.days_low)} to {plain(self.days_high)})"
        return f"<Projection of {self.script} on {self.cluster}: {count(self.tokens)} tokens in {days}>"
