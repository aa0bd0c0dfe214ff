"""The Result: what every verb answers, in real units, under one versioned schema; `presim.figures` has its parts.

Field descriptions are part of the types: the JSON Schema and ``docs/reference/result.md`` are generated from them.
Times are seconds, sizes bytes, shares fractions of 1. ``None`` means "not known", never zero.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.figures.grounds import Limit, Provenance, ReadBack, Share
from presim.figures.job import Connecting, Coverage, Draws, Flops, Job, Rank, Steps, Throughput
from presim.figures.memory import Estimate, Held, Memory, MemoryTimeline
from presim.figures.time import OUTSIDE_MODULES, Collective, Module, Operator, Slice, Time
from presim.says import says

__all__ = [
    "OUTSIDE_MODULES",
    "SCHEMA_VERSION",
    "Collective",
    "Connecting",
    "Coverage",
    "Draws",
    "Estimate",
    "Flops",
    "Held",
    "Job",
    "Limit",
    "Memory",
    "MemoryTimeline",
    "Module",
    "Operator",
    "Provenance",
    "Rank",
    "ReadBack",
    "Result",
    "Share",
    "Slice",
    "Steps",
    "Throughput",
    "Time",
]

SCHEMA_VERSION = 2


class Result(msgspec.Struct, frozen=True):
    """The answer of `presim run`, `presim simulate` and their Python twins, also where the script failed."""

    schema_version: Annotated[int, says("Version of this schema; raised when a field changes its meaning or goes.")]
    job: Annotated[Job, says("What was evaluated.")]
    ranks: Annotated[list[Rank], says("The captured ranks side by side; the other figures are those of `job.rank`.")]
    coverage: Annotated[Coverage, says("Which ranks were run and compared.")]
    exit: Annotated[
        str,
        says("How the script ended: ok, stopped (after --steps), raised, exited, out_of_memory or killed."),
    ]
    misuse: Annotated[
        list[str],
        says(
            "What CUDA would punish (copies beyond a block or into a freed one, indices out of range), with its line."
        ),
    ]
    error: Annotated[str, says("The script's own error, where it raised or ran out of memory.")]
    step_time_s: Annotated[float | None, says("Seconds of a steady step; of the whole run where it has no steps.")]
    step_time_low_s: Annotated[float | None, says("Lower end of the 80 % interval of step_time_s.")]
    step_time_high_s: Annotated[float | None, says("Upper end of the 80 % interval of step_time_s.")]
    first_step_time_s: Annotated[
        float | None,
        says("Seconds of the first step, from its first forward kernel; what NCCL sets up in it included."),
    ]
    throughput: Annotated[Throughput, says("Tokens, samples and steps per second.")]
    mfu: Annotated[float | None, says("Model FLOPs utilisation: flops.model / step time / peak.")]
    hfu: Annotated[float | None, says("Hardware FLOPs utilisation: flops.executed / step time / peak.")]
    flops: Annotated[Flops, says("FLOPs behind MFU and HFU.")]
    steps: Annotated[Steps, says("The steps in the trace.")]
    time: Annotated[Time, says("Where the time goes.")]
    memory: Annotated[Memory, says("Device memory.")]
    collectives: Annotated[list[Collective], says("Communication by group and kind, most exposed first.")]
    operators: Annotated[list[Operator], says("Device time by operator, largest part of the step first.")]
    families: Annotated[list[Operator], says("Device time by signature family, largest part of the step first.")]
    modules: Annotated[list[Module], says("Device time by module, depth first.")]
    limits: Annotated[list[Limit], says("What limits the step, largest first.")]
    provenance: Annotated[Provenance, says("Where the numbers come from.")]
    read_backs: Annotated[
        list[ReadBack],
        says("Values of the device that the captured ranks read, by place, the most frequent first."),
    ]
    policies: Annotated[dict[str, str], says("Policies for values that are not computed, by key of --values.")]
    not_modelled: Annotated[list[str], says("What the figures leave out, as sentences.")]
    notes: Annotated[list[str], says("What a reader should know, as sentences.")]
    draws: Annotated[Draws | None, says("The step time over several draws of experts; null where one was made.")] = None
