"""The Result: what every verb answers, in real units, under one versioned schema.

Field descriptions are part of the types: the JSON Schema and ``docs/concepts/result.md`` are generated from them.
Times are seconds, sizes bytes, shares fractions of 1. ``None`` means "not known", never zero.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

SCHEMA_VERSION = 1
OUTSIDE_MODULES = "(outside modules)"  # the path of work that belongs to no module


def says(text: str) -> msgspec.Meta:
    """The description of a field, in the JSON Schema and in the documentation."""
    return msgspec.Meta(description=text)


class Job(msgspec.Struct, frozen=True):
    """What was evaluated: the program, the rank that was captured, and the cluster it was priced for."""

    script: Annotated[str, says("The script or module that was run; empty for a trace made otherwise.")]
    rank: Annotated[int, says("The global rank whose trace this is.")]
    world_size: Annotated[int, says("Number of ranks of the job.")]
    gpu: Annotated[str, says("Catalogue id of the GPU the job was priced for.")]
    gpu_name: Annotated[str, says("The GPU's name in words.")]
    nodes: Annotated[int, says("Number of nodes of the cluster.")]
    gpus_per_node: Annotated[int, says("GPUs in each node.")]
    captured_gpu: Annotated[str, says("Catalogue id of the GPU that was emulated when the trace was made.")]
    versions: Annotated[dict[str, str], says("Versions of presim, torch and whatever else shaped the trace, by name.")]
    parameters: Annotated[
        int | None,
        says(
            "Parameters of the modules that the captured rank runs, whole where FSDP, DTensor or ZeRO shards them: the "
            "model, unless parts of it are on other ranks (pipelines, Megatron's tensor and expert parallelism)."
        ),
    ]
    parameters_local: Annotated[int | None, says("Parameters that the captured rank holds.")]


class Rank(msgspec.Struct, frozen=True):
    """One captured rank beside the others, in its steady step."""

    rank: Annotated[int, says("Its global rank.")]
    represented: Annotated[int, says("Ranks of the world that it stands for, itself included.")]
    step_time_s: Annotated[float, says("Its step time.")]
    compute_s: Annotated[float, says("Its compute streams run kernels.")]
    exposed_communication_s: Annotated[float, says("They wait while communication runs, or waits for other ranks.")]
    waiting_s: Annotated[
        float, says("The part of that in which communication cannot begin, because another rank has not come to it.")
    ]
    bubble_s: Annotated[
        float, says("The part of that in which sends and receives wait for the neighbours, and what is idle.")
    ]
    host_bound_s: Annotated[float, says("They wait for the host.")]
    peak_allocated_bytes: Annotated[int, says("PyTorch's own peak of allocated memory.")]
    peak_reserved_bytes: Annotated[int, says("PyTorch's own peak of reserved memory.")]
    parameters: Annotated[int | None, says("Parameters that it holds.")]
    exit: Annotated[str, says("How its script ended.")]


class Steps(msgspec.Struct, frozen=True):
    """Which optimizer steps the trace holds and which of them the figures describe."""

    count: Annotated[int, says("Optimizer steps in the trace; 0 where it has none.")]
    times_s: Annotated[list[float], says("Seconds of each step, in order; one value, the whole run, without steps.")]
    steady_index: Annotated[
        int,
        says("Index of the step that the figures describe: the median of those after the first that set nothing up."),
    ]
    steady: Annotated[
        bool, says("Whether it stands for all that follow: not the first, and no graph is recorded or compiled in it.")
    ]
    setup_s: Annotated[float, says("Seconds before the first step's forward pass (imports on the host excluded).")]


class Throughput(msgspec.Struct, frozen=True):
    """Work done per second of a steady step, over the whole job."""

    tokens_per_s: Annotated[float | None, says("Tokens per second of all ranks that read different data.")]
    samples_per_s: Annotated[float | None, says("Samples per second of all ranks that read different data.")]
    steps_per_s: Annotated[float | None, says("Steps per second.")]
    data_parallel_ranks: Annotated[
        int | None, says("Ranks assumed to read different data; world size where nothing better is known.")
    ]


class Flops(msgspec.Struct, frozen=True):
    """Floating-point operations of the captured rank in the steady step, multiply-adds counted as two."""

    model: Annotated[
        int,
        says("FLOPs the model needs: matrix products, attention (backward as 2x forward), convolutions."),
    ]
    executed: Annotated[int, says("FLOPs executed, recomputation included.")]
    recomputed: Annotated[int, says("FLOPs of activation recomputation (`Phase.RECOMPUTE`).")]
    dtype: Annotated[str, says("Data type that does most of the FLOPs; MFU and HFU are held against its dense peak.")]
    peak_per_s: Annotated[float | None, says("Dense peak of one GPU for that type, FLOPs per second.")]


class Slice(msgspec.Struct, frozen=True):
    """A named part of a whole."""

    name: Annotated[str, says("Name of the part.")]
    seconds: Annotated[float, says("Seconds in the steady step.")]
    share: Annotated[float, says("Share of the step time.")]


class Time(msgspec.Struct, frozen=True):
    """Where the steady step's time goes on the captured rank.

    ``compute_s + exposed_communication_s + exposed_copy_s + host_bound_s + idle_s`` is the step time.
    """

    compute_s: Annotated[float, says("A compute stream runs kernels.")]
    communication_s: Annotated[float, says("Some collective or send/recv runs, hidden or not.")]
    exposed_communication_s: Annotated[
        float, says("The compute streams wait while communication runs, or waits for other ranks.")
    ]
    waiting_s: Annotated[
        float, says("The part of that in which a collective waits for ranks that are late: it moves nothing yet.")
    ]
    copy_s: Annotated[float, says("Some copy between host and device or between devices runs, hidden or not.")]
    exposed_copy_s: Annotated[
        float, says("The compute streams wait while only copies, or helper kernels of other streams, run.")
    ]
    host_bound_s: Annotated[
        float, says("The compute streams are empty because the host has not issued their next kernel yet.")
    ]
    idle_s: Annotated[
        float,
        says(
            "Nothing runs for another reason: launch latency after a wait, the host returning from a synchronisation."
        ),
    ]
    contention_s: Annotated[
        float,
        says(
            "The part of compute_s, exposed_communication_s and exposed_copy_s by which work took longer because of "
            "what ran beside it."
        ),
    ]
    compute_streams: Annotated[list[int], says("Indices of the streams taken as compute streams.")]
    by_phase: Annotated[
        list[Slice],
        says("Compute and exposed copies by phase of the program: forward, recompute, backward, optimizer, other."),
    ]


class Collective(msgspec.Struct, frozen=True):
    """All calls of one kind in one process group within the steady step."""

    group: Annotated[str, says("Name of the process group.")]
    group_size: Annotated[int, says("Ranks in the group.")]
    kind: Annotated[str, says("all_reduce, all_gather, reduce_scatter, …")]
    count: Annotated[int, says("Calls.")]
    bytes: Annotated[int, says("Bytes as nccl-tests counts them, of uneven exchanges the busier direction, summed.")]
    seconds: Annotated[float, says("Sum of the calls' durations, once all their ranks are there.")]
    exposed_s: Annotated[
        float, says("The part of exposed communication that falls to these calls, waiting for other ranks included.")
    ]
    algorithm_GBps: Annotated[float | None, says("bytes / seconds / 10^9.")]


class Operator(msgspec.Struct, frozen=True):
    """Device time of one operator, or of one family of signatures, within the steady step."""

    name: Annotated[str, says("The operator, e.g. aten::mm, or the signature family, e.g. gemm.")]
    count: Annotated[int, says("Launches.")]
    seconds: Annotated[float, says("Sum of durations on the device, whatever runs beside.")]
    critical_s: Annotated[float, says("Its part of the step time: what is hidden behind other work does not count.")]
    share: Annotated[float, says("critical_s over the step time.")]
    flops: Annotated[int, says("FLOPs executed.")]
    bytes: Annotated[int, says("Bytes moved, where the signatures know them.")]


class Module(msgspec.Struct, frozen=True):
    """Device time within one module scope in the steady step; numbered siblings are merged (``layers.*``).

    Listed depth first, so that indentation by ``depth`` gives the tree.
    """

    path: Annotated[str, says("Module path, with * for the numbers of siblings that were merged.")]
    depth: Annotated[int, says("Depth in the tree, 0 for the top.")]
    instances: Annotated[int, says("Modules merged into this line.")]
    seconds: Annotated[float, says("Sum of durations on the device, submodules and communication included.")]
    critical_s: Annotated[float, says("Its part of the step time: what is hidden behind other work does not count.")]
    self_s: Annotated[float, says("seconds without submodules.")]
    forward_s: Annotated[float, says("Part of seconds in the forward pass.")]
    backward_s: Annotated[float, says("Part of seconds in the backward pass.")]
    recompute_s: Annotated[float, says("Part of seconds in recomputation.")]
    communication_s: Annotated[float, says("Part of seconds that is communication.")]


class Estimate(msgspec.Struct, frozen=True):
    """Memory that the device holds and the allocator does not know of."""

    name: Annotated[str, says("What holds it.")]
    bytes: Annotated[int, says("Estimated size.")]
    source: Annotated[str, says("Where the estimate comes from.")]


class Held(msgspec.Struct, frozen=True):
    """Memory held at the peak of allocated memory, by some name."""

    name: Annotated[str, says("Category or module scope.")]
    bytes: Annotated[int, says("Bytes in live blocks.")]
    blocks: Annotated[int, says("Number of live blocks.")]


class MemoryTimeline(msgspec.Struct, frozen=True):
    """Memory over the steady step, downsampled so that every peak survives."""

    time_s: Annotated[
        list[float], says("Seconds since the start of the simulation, when the device reaches the allocation.")
    ]
    allocated_bytes: Annotated[list[int], says("Largest allocated value up to the next point.")]
    reserved_bytes: Annotated[list[int], says("Largest reserved value up to the next point.")]


class Memory(msgspec.Struct, frozen=True):
    """Device memory of the fullest captured rank, as PyTorch's caching allocator counts it."""

    fits: Annotated[
        bool | None,
        says("Whether the job fits the device; None where nothing was allocated or the script failed first."),
    ]
    verdict: Annotated[str, says("One sentence: fits or not, by how much, and how sure that is.")]
    advice: Annotated[str, says("What would free most, where it does not fit; empty otherwise.")]
    peak_allocated_bytes: Annotated[
        int, says("Largest sum of live blocks over the whole run (torch.cuda.max_memory_allocated).")
    ]
    peak_reserved_bytes: Annotated[
        int, says("Largest sum of segments over the whole run (torch.cuda.max_memory_reserved).")
    ]
    step_peak_allocated_bytes: Annotated[int, says("The same within the steady step.")]
    step_peak_reserved_bytes: Annotated[int, says("The same within the steady step.")]
    device_total_bytes: Annotated[int, says("Memory of the device.")]
    headroom_bytes: Annotated[
        int,
        says("device_total - peak_reserved - beyond_allocator - requested; negative where it does not fit."),
    ]
    beyond_allocator: Annotated[list[Estimate], says("What the device holds besides, as named estimates.")]
    by_category: Annotated[list[Held], says("What holds the peak of allocated memory, by category.")]
    by_module: Annotated[
        list[Held], says("What holds it, by the module scope that allocated it; numbered siblings merged.")
    ]
    requested_bytes: Annotated[
        int | None, says("Size of the allocation that failed, where the script ran out of memory.")
    ]
    timeline: Annotated[MemoryTimeline, says("Memory over the steady step.")]


class Share(msgspec.Struct, frozen=True):
    """How much of the step time rests on one origin, and how sure it is."""

    name: Annotated[str, says("measured, interpolated, learned, analytic, or host (CPU time as it was captured).")]
    estimators: Annotated[list[str], says("Names of the estimators that answered.")]
    seconds: Annotated[float, says("Seconds of the step time.")]
    share: Annotated[float, says("Share of the step time.")]
    uncertainty: Annotated[float, says("Mean relative uncertainty (80 %) of these seconds.")]


class Provenance(msgspec.Struct, frozen=True):
    """Where the step time's numbers come from."""

    by_origin: Annotated[list[Share], says("Share of the step time by origin of its prices.")]
    method: Annotated[str, says("How the uncertainties were combined.")]


class Limit(msgspec.Struct, frozen=True):
    """Something that bounds the step time, and what would help."""

    name: Annotated[str, says("compute, memory_bandwidth, communication, host, copies, recomputation or latency.")]
    seconds: Annotated[float, says("Seconds of the step it accounts for.")]
    share: Annotated[float, says("Share of the step time.")]
    statement: Annotated[str, says("What was found, with its number.")]
    advice: Annotated[str, says("What would help, and by how much at most.")]


class ReadBack(msgspec.Struct, frozen=True):
    """A place where the script read values of the device."""

    line: Annotated[str, says("Where: ``file.py:12``, the innermost line that is neither Python's nor a package's.")]
    what: Annotated[str, says("How: item, copy to host, or the operator that read (nonzero, unique, …).")]
    answer: Annotated[
        str,
        says("Who answered: computed, or a policy: loss, gradient norm, finite, routing, sampling, number, zero."),
    ]
    times: Annotated[int, says("How often.")]


class Result(msgspec.Struct, frozen=True):
    """The answer of `presim run`, `presim simulate` and their Python twins, also where the script failed."""

    schema_version: Annotated[int, says("Version of this schema; raised when a field changes its meaning or goes.")]
    job: Annotated[Job, says("What was evaluated.")]
    ranks: Annotated[list[Rank], says("The captured ranks side by side; the other figures are those of `job.rank`.")]
    checked_ranks: Annotated[int, says("Ranks that were run for one step and did as the rank that stands for them.")]
    exit: Annotated[
        str,
        says("How the script ended: ok, stopped (after --steps), raised, exited, out_of_memory or killed."),
    ]
    error: Annotated[str, says("The script's own error, where it raised or ran out of memory.")]
    step_time_s: Annotated[float | None, says("Seconds of a steady step; of the whole run where it has no steps.")]
    step_time_low_s: Annotated[float | None, says("Lower end of the 80 % interval of step_time_s.")]
    step_time_high_s: Annotated[float | None, says("Upper end of the 80 % interval of step_time_s.")]
    first_step_time_s: Annotated[float | None, says("Seconds of the first step, from its first forward kernel.")]
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
        list[ReadBack], says("Values of the device that the script read, the most frequent first (200 places at most).")
    ]
    policies: Annotated[dict[str, str], says("Policies for values that are not computed, by key of --values.")]
    not_modelled: Annotated[list[str], says("What the figures leave out, as sentences.")]
    notes: Annotated[list[str], says("What a reader should know, as sentences.")]
