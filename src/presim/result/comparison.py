"""Differences between results, with parts that add up to the whole."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc
from presim.units import seconds

_SHOWN = 4  # results in a line


class Compared(msgspec.Struct, frozen=True):
    """One of the results that are compared."""

    label: Annotated[str, doc("Label of the result: its file or folder, or the options that vary.")]
    script: Annotated[str, doc("The script or module that was run.")]
    cluster: Annotated[str, doc("Nodes, GPUs in each, and the GPU's name.")]
    step_time_s: Annotated[float | None, doc("Seconds of a steady step.")]
    step_time_low_s: Annotated[float | None, doc("Lower end of its 80 % interval.")]
    step_time_high_s: Annotated[float | None, doc("Upper end.")]
    tokens_per_s: Annotated[float | None, doc("Tokens per second of the whole job.")]
    tokens_per_s_per_gpu: Annotated[float | None, doc("The same per GPU of the world.")]
    mfu: Annotated[float | None, doc("Model FLOPs utilisation.")]
    exposed_communication_s: Annotated[float, doc("Time in which compute streams wait for communication.")]
    peak_allocated_bytes: Annotated[int, doc("PyTorch's peak of allocated memory.")]
    peak_reserved_bytes: Annotated[int, doc("PyTorch's peak of reserved memory.")]
    fits: Annotated[bool | None, doc("Whether the job fits the device.")]
    beyond_allocator_bytes: Annotated[int, doc("Memory of libraries and the driver, outside PyTorch's allocator.")] = 0


class Delta(msgspec.Struct, frozen=True):
    """One part of a whole, before and after."""

    name: Annotated[str, doc("Name of the part.")]
    before: Annotated[float, doc("Seconds or bytes in the baseline; 0 where it has no such part.")]
    after: Annotated[float, doc("Seconds or bytes in the other result; 0 where it has no such part.")]
    count_before: Annotated[int | None, doc("Launches, calls or blocks in the baseline, where they are counted.")]
    count_after: Annotated[int | None, doc("The same in the other result.")]

    @property
    def change(self) -> float:
        """What was added; negative where the part shrank."""
        return self.after - self.before


class Difference(msgspec.Struct, frozen=True):
    """What changed from the baseline, the first result, to another.

    The parts of ``step_time`` add up to the step times of both, and so do those of ``memory`` to the memory that was
    allocated at the peaks.
    """

    label: Annotated[str, doc("The other result.")]
    settings: Annotated[list[str], doc("Differences between the jobs: script, cluster, versions, policies, batch.")]
    step_time_change_s: Annotated[float | None, doc("Seconds that a step takes longer; negative: shorter.")]
    speedup: Annotated[float | None, doc("Step time of the baseline over that of the other.")]
    throughput_ratio: Annotated[float | None, doc("Tokens per second of the other over those of the baseline.")]
    overlapping: Annotated[
        bool | None,
        doc("Whether the 80 % intervals of the two step times overlap. Intervals take prices as independent: for one "
             "GPU and one program an ordering is surer than that."),
    ]  # fmt: skip
    memory_change_bytes: Annotated[int, doc("Bytes by which the peak of reserved memory grew.")]
    step_time: Annotated[
        list[Delta],
        doc("Families of kernels and collectives on the critical path, waiting for the host, and idle time."),
    ]
    phases: Annotated[list[Delta], doc("Compute and exposed copies by phase of the program.")]
    operators: Annotated[list[Delta], doc("Operators on the critical path, those that changed most first.")]
    modules: Annotated[list[Delta], doc("Modules without their submodules: their parts of the step time.")]
    collectives: Annotated[list[Delta], doc("Exposed time by kind and group.")]
    memory: Annotated[list[Delta], doc("What holds the peak of allocated memory, by category, in bytes.")]


class Comparison(msgspec.Struct, frozen=True):
    """The answer of `presim compare`."""

    schema_version: Annotated[int, doc("Version of this schema.")]
    results: Annotated[list[Compared], doc("The results in the order they were named; the first is the baseline.")]
    differences: Annotated[list[Difference], doc("From the baseline to each of the others.")]
    partial: Annotated[bool, doc("Whether a signal ended the comparison before all results were there.")] = False
    kind: Annotated[str, doc("Kind of the result.")] = "comparison"

    def __repr__(self) -> str:
        steps = [(row.label, row.step_time_s) for row in self.results[:_SHOWN]]
        shown = ", ".join(f"{label}: {'no step' if step_s is None else seconds(step_s)}" for label, step_s in steps)
        remainder = f", and {len(self.results) - _SHOWN} others" if len(self.results) > _SHOWN else ""
        return f"<Comparison of {shown}{remainder}>"
