"""The Result: what every verb answers, in real units, under one versioned schema; `presim.result` has its parts.

Field descriptions are part of the types: the JSON Schema and ``docs/reference/result.md`` are generated from them.
Times are seconds, sizes bytes, shares fractions of 1. ``None`` means "not known", never zero.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import msgspec

from presim.result.analysis import Analysis, Figure
from presim.result.energy import Energy, PowerPart
from presim.result.evaluated_job import (
    Connecting,
    Coverage,
    Draws,
    EvaluatedJob,
    Flops,
    Rank,
    StepPhase,
    Steps,
    Throughput,
)
from presim.result.every_rank import EveryRank, Straggler
from presim.result.hardware_events import HardwareEvents
from presim.result.memory import Estimate, Held, Memory, MemoryTimeline, ModulePeak
from presim.result.provenance import Limit, PolicyUse, Provenance, ReadBack, Share
from presim.result.time import OUTSIDE_MODULES, Collective, Module, Operator, Slice, Time
from presim.result.training import Projection
from presim.system.files.field_docs import doc

__all__ = [
    "OUTSIDE_MODULES",
    "SCHEMA_VERSION",
    "Analysis",
    "Collective",
    "Connecting",
    "Coverage",
    "Draws",
    "Energy",
    "Estimate",
    "EvaluatedJob",
    "EveryRank",
    "Figure",
    "Flops",
    "Held",
    "Limit",
    "Memory",
    "MemoryTimeline",
    "Module",
    "ModulePeak",
    "Operator",
    "PolicyUse",
    "PowerPart",
    "Provenance",
    "Rank",
    "ReadBack",
    "Result",
    "Share",
    "Slice",
    "StepPhase",
    "Steps",
    "Straggler",
    "Throughput",
    "Time",
]

SCHEMA_VERSION = 2
_NOTEBOOK = "presim.report.notebook"  # found by its name: reports come after results


class Result(msgspec.Struct, frozen=True):
    """The answer of `presim run`, `presim simulate` and their Python twins, also where the script failed."""

    schema_version: Annotated[int, doc("Version of this schema; raised when a field changes its meaning or goes.")]
    job: Annotated[EvaluatedJob, doc("What was evaluated.")]
    ranks: Annotated[list[Rank], doc("The captured ranks side by side; the other figures are those of `job.rank`.")]
    coverage: Annotated[Coverage, doc("Which ranks were run and compared.")]
    exit: Annotated[
        str,
        doc("How the script ended: ok, stopped (after --steps), raised, exited, out_of_memory or killed."),
    ]
    misuse: Annotated[
        list[str],
        doc("What CUDA would punish (copies beyond a block or into a freed one, indices out of range), with its line."),
    ]
    error: Annotated[str, doc("The script's own error, where it raised or ran out of memory.")]
    step_time_s: Annotated[float | None, doc("Seconds of a steady step; of the whole run where it has no steps.")]
    step_time_low_s: Annotated[float | None, doc("Lower end of the 80 % interval of step_time_s.")]
    step_time_high_s: Annotated[float | None, doc("Upper end of the 80 % interval of step_time_s.")]
    first_step_time_s: Annotated[
        float | None,
        doc("Seconds of the first step, from its first forward kernel; what NCCL sets up in it included."),
    ]
    throughput: Annotated[Throughput, doc("Tokens, samples and steps per second.")]
    mfu: Annotated[float | None, doc("Model FLOPs utilisation: flops.model / step time / peak.")]
    hfu: Annotated[float | None, doc("Hardware FLOPs utilisation: flops.executed / step time / peak.")]
    flops: Annotated[Flops, doc("FLOPs behind MFU and HFU.")]
    steps: Annotated[Steps, doc("The steps in the trace.")]
    time: Annotated[Time, doc("Where the time goes.")]
    memory: Annotated[Memory, doc("Device memory.")]
    collectives: Annotated[list[Collective], doc("Communication by group and kind, most exposed first.")]
    operators: Annotated[list[Operator], doc("Device time by operator, largest part of the step first.")]
    families: Annotated[list[Operator], doc("Device time by signature family, largest part of the step first.")]
    modules: Annotated[list[Module], doc("Device time by module, depth first.")]
    limits: Annotated[list[Limit], doc("What limits the step, largest first.")]
    provenance: Annotated[Provenance, doc("Where the numbers come from.")]
    read_backs: Annotated[
        list[ReadBack],
        doc("Values of the device that the captured ranks read, by place, the most frequent first."),
    ]
    policies: Annotated[dict[str, str], doc("Policies for values that are not computed, by key of --values.")]
    not_modelled: Annotated[list[str], doc("What the figures leave out, as sentences.")]
    notes: Annotated[list[str], doc("What a reader should know, as sentences.")]
    draws: Annotated[Draws | None, doc("The step time over several draws of experts; null where one was made.")] = None
    every_rank: Annotated[
        EveryRank | None, doc("The step with every rank simulated; null where only those that differ were.")
    ] = None
    partial: Annotated[bool, doc("Whether a signal ended it before all ranks or draws had run; `notes` say which.")] = (
        False
    )
    energy: Annotated[Energy | None, doc("Energy of the steady step, an estimate; null where it is not known.")] = None
    analyses: Annotated[list[Analysis], doc("Analyses of installed packages; see docs/extend/analyses.md.")] = []
    policies_used: Annotated[
        list[PolicyUse], doc("Policies whose values the script read, with the lines that read them.")
    ] = []
    hardware_events: Annotated[
        HardwareEvents | None, doc("A run with failing hardware; null where none was asked for.")
    ] = None
    training: Annotated[
        Projection | None, doc("A whole training with such steps (--tokens); null where none was asked for.")
    ] = None
    kind: Annotated[str, doc("Kind of the result, for `presim report` and `presim view`.")] = "run"

    def chart(self, figure: str = "time") -> Any:
        """A figure as an Altair chart: time, memory, memory-over-time or operators.

        Raises:
            InputError: there is no such figure, the result knows nothing of it, or Altair is not installed.
        """
        return importlib.import_module(_NOTEBOOK).chart(self, figure)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        shown: str = importlib.import_module(_NOTEBOOK).as_html(self)
        return shown

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The same, with the step time in a line for consoles."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        took = "no step" if self.step_time_s is None else f"step {self.step_time_s * 1e3:.4g} ms"
        return f"<Result {took}, rank {self.job.rank} of {self.job.world_size} on {self.job.gpu}>"
