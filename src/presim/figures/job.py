"""What was evaluated, and the figures that name it in a sentence: ranks, steps, throughput, FLOPs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.says import says


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


class Coverage(msgspec.Struct, frozen=True):
    """Which ranks the figures rest on: captured, compared with a captured one, or assumed to do the same."""

    captured: Annotated[int, says("Ranks whose work is in the prediction; `ranks` lists them.")]
    compared: Annotated[int, says("Other ranks that ran and did the same as the captured rank that stands for them.")]
    assumed: Annotated[int, says("Ranks that did not run and are assumed to do the same as a captured one.")]
    unknown: Annotated[int, says("Ranks that did not run and that no captured rank stands for.")]
    undecided: Annotated[
        int, says("The assumed ones that lie between two kinds of ranks, so that it is not known which they are of.")
    ]
    failed: Annotated[int, says("The assumed ones that ran and failed where the captured ranks did not.")]
    steps: Annotated[int, says("Steps of each compared rank that were compared; 0: its whole run.")]
    rule: Annotated[str, says("How the ranks to run were chosen; empty where that is not known.")]
    rank_reads: Annotated[
        list[str],
        says("Lines and packages outside PyTorch that ask which rank this is, with what they ask for."),
    ]


class Connecting(msgspec.Struct, frozen=True):
    """What NCCL takes to make communicators and connect their ranks until the end of the first step; an estimate."""

    communicators: Annotated[int, says("Communicators of more than one rank that are made.")]
    before_s: Annotated[float, says("Seconds of it before the first step; part of `setup_s`.")]
    in_first_step_s: Annotated[float, says("Seconds of it in the first step; part of `first_step_time_s`.")]
    low_s: Annotated[float, says("Lower end of an 80 % interval of both together.")]
    high_s: Annotated[float, says("Upper end.")]


class Draws(msgspec.Struct, frozen=True):
    """The step time over several draws of the experts that tokens go to (`--draws`)."""

    routing: Annotated[str, says("The policy that drew, with the first seed; each further draw has the next one.")]
    step_times_s: Annotated[list[float], says("Seconds of a steady step, by draw.")]
    p10_s: Annotated[float, says("10th percentile, interpolated between draws.")]
    p50_s: Annotated[float, says("Median.")]
    p90_s: Annotated[float, says("90th percentile.")]


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
    setup_s: Annotated[
        float,
        says("Seconds before the first step's forward pass (imports on the host excluded; connecting included)."),
    ]
    connecting: Annotated[
        Connecting | None,
        says("What NCCL sets up once; in no step's time of `times_s`. None: no collective, or of an older presim."),
    ] = None


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
