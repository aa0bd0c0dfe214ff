"""What limits a step, and the gain of each candidate."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.result.critical_path import CriticalPath
from presim.result.provenance import Limit
from presim.system.files.field_docs import doc
from presim.units import seconds

SCHEMA_VERSION = 1


class Gain(msgspec.Struct, frozen=True):
    """One candidate, simulated."""

    change: Annotated[str, doc("What is changed.")] = msgspec.field(name="what")
    remedy: Annotated[str, doc("How to make this change on the cluster.")] = msgspec.field(name="how")
    kind: Annotated[str, doc("bound: an upper limit of such a gain; change: something that can be done.")]
    options: Annotated[str, doc("Options of `presim simulate`, or fields of the plan, that reproduce it.")]
    step_time_s: Annotated[float, doc("Seconds of a step with it.")]
    gain_s: Annotated[float, doc("Seconds saved per step; negative: the step takes longer.")]
    gain_low_s: Annotated[float, doc("Lower end, in proportion to the 80 % interval of the step's own time.")]
    gain_high_s: Annotated[float, doc("Upper end.")]
    throughput_ratio: Annotated[float | None, doc("Tokens per second with it over those without.")]
    memory_change_bytes: Annotated[int, doc("Bytes by which the peak of reserved memory grows.")]
    fits: Annotated[bool | None, doc("Whether the job still fits.")]


class CapturedCandidate(msgspec.Struct, frozen=True):
    """One candidate, captured on the real program."""

    change: Annotated[str, doc("What is changed.")] = msgspec.field(name="what")
    options: Annotated[str, doc("Knobs with their values.")]
    composed_gain_s: Annotated[float | None, doc("Seconds saved per step as composed; none: it was not composed.")]
    composed_throughput_ratio: Annotated[float | None, doc("Tokens per second over those without, as composed.")]
    words: Annotated[str, doc("Why it was not captured; else empty.")]
    step_time_s: Annotated[float | None, doc("Seconds of a captured step with it.")] = None
    gain_s: Annotated[float | None, doc("Seconds saved per step, against the captured job as it is.")] = None
    gain_low_s: Annotated[
        float | None, doc("Lower end, in proportion to the 80 % interval of the step's own time.")
    ] = None
    gain_high_s: Annotated[float | None, doc("Upper end.")] = None
    throughput_ratio: Annotated[float | None, doc("Tokens per second with it over those without.")] = None
    memory_change_bytes: Annotated[int | None, doc("Bytes by which what the device holds grows.")] = None
    fits: Annotated[bool | None, doc("Whether the job still fits.")] = None


class CapturedCandidates(msgspec.Struct, frozen=True):
    """Candidates that were captured."""

    by: Annotated[str, doc("What they were captured with: the user's command, or a framework.")]
    step_time_s: Annotated[float, doc("Seconds of a step of the captured job as it is.")]
    rows: Annotated[list[CapturedCandidate], doc("The candidates by throughput, largest first; failures last.")]
    partial: Annotated[bool, doc("Whether a signal ended the captures before the last candidate.")] = False


class Explanation(msgspec.Struct, frozen=True):
    """The answer of `presim explain`."""

    schema_version: Annotated[int, doc("Version of this schema.")]
    job: Annotated[str, doc("The saved job.")]
    script: Annotated[str, doc("What was run.")]
    cluster: Annotated[str, doc("Nodes, GPUs in each, and the GPU's name.")]
    step_time_s: Annotated[float, doc("Seconds of a steady step.")]
    limits: Annotated[list[Limit], doc("What limits the step, largest first.")]
    critical_path: Annotated[CriticalPath, doc("The critical path of the step.")]
    gains: Annotated[list[Gain], doc("Candidates by their gain in throughput, largest first.")]
    composed_step_time_s: Annotated[
        float | None, doc("With a model: seconds of the composed step that its plans are held against.")
    ]
    plans: Annotated[list[Gain], doc("With a model: neighbouring plans, composed and simulated, largest gain first.")]
    refused: Annotated[list[str], doc("Candidates and neighbouring plans that are not possible, with the reason.")]
    confirmed: Annotated[
        CapturedCandidates | None, doc("Candidates captured on the real program, where asked for.")
    ] = None
    partial: Annotated[bool, doc("Whether a signal ended it before all candidates were evaluated.")] = False
    kind: Annotated[str, doc("Kind of the result.")] = "explanation"

    def __repr__(self) -> str:
        first = f", first {self.gains[0].change}: {seconds(self.gains[0].gain_s)} saved" if self.gains else ""
        step = seconds(self.step_time_s)
        return f"<Explanation of {self.script} on {self.cluster}, step {step}: {len(self.gains)} candidates{first}>"
