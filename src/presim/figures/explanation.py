"""What limits a step, and the gain of each candidate."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.field_docs import doc
from presim.figures.critical_path import CriticalPath
from presim.figures.provenance import Limit

SCHEMA_VERSION = 1


class Gain(msgspec.Struct, frozen=True):
    """One candidate, simulated."""

    what: Annotated[str, doc("What is changed.")]
    how: Annotated[str, doc("What would bring it about on the cluster.")]
    kind: Annotated[str, doc("bound: an upper limit of such a gain; change: something that can be done.")]
    options: Annotated[str, doc("Options of `presim simulate`, or fields of the plan, that show it again.")]
    step_time_s: Annotated[float, doc("Seconds of a step with it.")]
    gain_s: Annotated[float, doc("Seconds that a step gains; negative: it takes longer.")]
    gain_low_s: Annotated[float, doc("Lower end, in proportion to the 80 % interval of the step's own time.")]
    gain_high_s: Annotated[float, doc("Upper end.")]
    throughput_ratio: Annotated[float | None, doc("Tokens per second with it over those without.")]
    memory_change_bytes: Annotated[int, doc("Bytes by which the peak of reserved memory grows.")]
    fits: Annotated[bool | None, doc("Whether the job still fits.")]


class Explanation(msgspec.Struct, frozen=True):
    """The answer of `presim explain`."""

    schema_version: Annotated[int, doc("Version of this schema.")]
    job: Annotated[str, doc("The saved job.")]
    script: Annotated[str, doc("What was run.")]
    cluster: Annotated[str, doc("Nodes, GPUs in each, and the GPU's name.")]
    step_time_s: Annotated[float, doc("Seconds of a steady step.")]
    limits: Annotated[list[Limit], doc("What limits the step, largest first.")]
    critical_path: Annotated[CriticalPath, doc("The chain that makes the step as long as it is.")]
    gains: Annotated[list[Gain], doc("Candidates by their gain in throughput, largest first.")]
    composed_step_time_s: Annotated[
        float | None, doc("With a model: seconds of the composed step that its plans are held against.")
    ]
    plans: Annotated[list[Gain], doc("With a model: neighbouring plans, composed and simulated, largest gain first.")]
    refused: Annotated[list[str], doc("Neighbouring plans that cannot be, with the reason.")]
