"""The job that was evaluated: ranks, steps, throughput, FLOPs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc


class EvaluatedJob(msgspec.Struct, frozen=True):
    """What was evaluated: the program, the rank that was captured, and the cluster it was priced for."""

    script: Annotated[str, doc("The script or module; empty for a trace from another source.")]
    rank: Annotated[int, doc("The global rank whose trace this is.")]
    world_size: Annotated[int, doc("Number of ranks of the job.")]
    gpu: Annotated[str, doc("Catalogue id of the GPU the job was priced for.")]
    gpu_name: Annotated[str, doc("The GPU's name in words.")]
    nodes: Annotated[int, doc("Number of nodes of the cluster.")]
    gpus_per_node: Annotated[int, doc("GPUs in each node.")]
    captured_gpu: Annotated[str, doc("Catalogue id of the GPU that was emulated when the trace was made.")]
    versions: Annotated[dict[str, str], doc("Versions of presim, torch and whatever else shaped the trace, by name.")]
    parameters: Annotated[
        int | None,
        doc(
            "Parameters of the modules that the captured rank runs, whole where FSDP, DTensor or ZeRO shards them: the "
            "model, unless parts of it are on other ranks (pipelines, Megatron's tensor and expert parallelism)."
        ),
    ]
    parameters_local: Annotated[int | None, doc("Parameters that the captured rank holds.")]

    @property
    def cluster(self) -> str:
        """Nodes, GPUs of each and their kind, as in ``2 x 8 NVIDIA H100 80GB HBM3``."""
        return f"{self.nodes} x {self.gpus_per_node} {self.gpu_name}"


class Rank(msgspec.Struct, frozen=True):
    """One captured rank beside the others, in its steady step."""

    rank: Annotated[int, doc("Its global rank.")]
    represented: Annotated[int, doc("Ranks of the world that it stands for, itself included.")]
    step_time_s: Annotated[float, doc("Its step time.")]
    compute_s: Annotated[float, doc("Its compute streams run kernels.")]
    exposed_communication_s: Annotated[float, doc("They wait while communication runs, or waits for other ranks.")]
    waiting_s: Annotated[
        float, doc("The part of that in which communication cannot begin, because another rank has not come to it.")
    ]
    bubble_s: Annotated[
        float, doc("The part of that in which sends and receives wait for the neighbours, and what is idle.")
    ]
    host_bound_s: Annotated[float, doc("They wait for the host.")]
    peak_allocated_bytes: Annotated[int, doc("PyTorch's own peak of allocated memory.")]
    peak_reserved_bytes: Annotated[int, doc("PyTorch's own peak of reserved memory.")]
    parameters: Annotated[int | None, doc("Parameters that it holds.")]
    exit: Annotated[str, doc("How its script ended.")]


class Coverage(msgspec.Struct, frozen=True):
    """Which ranks the figures rest on: captured, compared with a captured one, or assumed to do the same."""

    captured: Annotated[int, doc("Ranks whose work is in the prediction; `ranks` lists them.")]
    compared: Annotated[int, doc("Other ranks that ran and did the same as the captured rank that stands for them.")]
    assumed: Annotated[int, doc("Ranks that did not run and are assumed to do the same as a captured one.")]
    unknown: Annotated[int, doc("Ranks that did not run and that no captured rank stands for.")]
    undecided: Annotated[int, doc("Assumed ranks between two kinds of ranks, whose kind is unknown.")]
    failed: Annotated[int, doc("Assumed ranks that ran and failed although the captured ranks did not.")]
    steps: Annotated[int, doc("Steps of each compared rank that were compared; 0: its whole run.")]
    rule: Annotated[str, doc("How the ranks to run were chosen; empty if unknown.")]
    rank_reads: Annotated[
        list[str],
        doc(
            "Lines and packages outside PyTorch that were seen to read the rank, with what they read, and whether only "
            "the choice of a device or what is printed depends on it."
        ),
    ]
    dependence: Annotated[
        str,
        doc(
            "A sentence if collectives depend on values of a policy that the program reads: where they differ by "
            "rank, ranks call different collectives. Empty if not seen."
        ),
    ] = ""


class Connecting(msgspec.Struct, frozen=True):
    """What NCCL takes to make communicators and connect their ranks until the end of the first step; an estimate."""

    communicators: Annotated[int, doc("Number of communicators with more than one rank.")]
    before_s: Annotated[float, doc("Seconds of it before the first step; part of `setup_s`.")]
    in_first_step_s: Annotated[float, doc("Seconds of it in the first step; part of `first_step_time_s`.")]
    low_s: Annotated[float, doc("Lower end of an 80 % interval of both together.")]
    high_s: Annotated[float, doc("Upper end.")]


class Draws(msgspec.Struct, frozen=True):
    """The step time over several draws of the experts that tokens go to (`--draws`)."""

    routing: Annotated[str, doc("The policy that drew, with the first seed; each further draw has the next one.")]
    step_times_s: Annotated[list[float], doc("Seconds of a steady step, by draw.")]
    p10_s: Annotated[float, doc("10th percentile, interpolated between draws.")]
    p50_s: Annotated[float, doc("Median.")]
    p90_s: Annotated[float, doc("90th percentile.")]


class UnusualStep(msgspec.Struct, frozen=True):
    """A step that takes much longer or shorter than the median one."""

    index: Annotated[int, doc("Its index in `times_s`.")]
    time_s: Annotated[float, doc("Its time.")]
    reason: Annotated[str, doc("What it does more or less of, as a clause; empty if the trace does not show it.")]


class StepPhase(msgspec.Struct, frozen=True):
    """A part of a step: an inner loop, or what lies outside of inner loops up to an optimizer step."""

    kind: Annotated[
        str,
        doc(
            "loop: an inner loop; update: it ends with an optimizer step; call: it calls a model, and neither follows."
        ),
    ]
    line: Annotated[str, doc("Line of the loop, or of what calls the optimizer or first calls the model.")]
    runs: Annotated[int, doc("Iterations of the loop in a step; how often a step has another phase.")]
    run_s: Annotated[float, doc("Seconds of one of them, on average.")]
    seconds: Annotated[float, doc("Seconds of all of them: work on the device, from the end of the phase before.")]
    share: Annotated[float | None, doc("Share of `step_time_s`; null if the step that the figures describe lacks it.")]
    share_of_steps: Annotated[float, doc("Share of the steps after the first that set nothing up and have this phase.")]


class Steps(msgspec.Struct, frozen=True):
    """Which steps the trace holds, what a step is, and which of them the figures describe."""

    count: Annotated[int, doc("Steps in the trace; 0 where it has none.")]
    times_s: Annotated[list[float], doc("Seconds of each step, in order; one value, the whole run, without steps.")]
    steady_index: Annotated[
        int,
        doc("Index of the step that the figures describe: the median of those after the first that set nothing up."),
    ]
    steady: Annotated[
        bool, doc("Whether it stands for all that follow: not the first, and no graph is recorded or compiled in it.")
    ]
    setup_s: Annotated[
        float,
        doc(
            "Seconds before the first step's forward pass: set-up, and what runs before the loop (imports on the host "
            "excluded; connecting included)."
        ),
    ]
    connecting: Annotated[
        Connecting | None,
        doc("What NCCL sets up once; in no step's time of `times_s`. None: no collective, or of an older presim."),
    ] = None
    loop: Annotated[
        str, doc("Line of the loop whose iterations are steps; empty if each optimizer step is one, or not known.")
    ] = ""
    iterations: Annotated[int, doc("Iterations of that loop in a step: those that share an update.")] = 1
    updates: Annotated[int, doc("Optimizer steps in a step; 0 if other code updates the parameters.")] = 1
    phases: Annotated[
        list[StepPhase],
        doc(
            "Phases of the step that the figures describe, in order, then those that only other steps have; empty if "
            "it is a single phase."
        ),
    ] = []
    mean_s: Annotated[
        float | None, doc("Mean of the steps that repeat, over whole rounds where every n-th does more.")
    ] = None
    median_s: Annotated[
        float | None, doc("Median of all that repeat: not the first, nor those that set something up.")
    ] = None
    min_s: Annotated[float | None, doc("The shortest of them.")] = None
    max_s: Annotated[float | None, doc("The longest of them.")] = None
    added_wait_s: Annotated[
        float,
        doc(
            "Seconds by which the reported step time is above `times_s[steady_index]`, because the host of a mean step "
            "waits longer for data; negative: below. 0 where the data loader is no bottleneck."
        ),
    ] = 0.0
    unusual: Annotated[
        list[UnusualStep], doc("Those of them that take 1.2 times the median or more, or less than the median / 1.2.")
    ] = []


class Throughput(msgspec.Struct, frozen=True):
    """Work done per second of a steady step, over the whole job."""

    tokens_per_s: Annotated[float | None, doc("Tokens per second of all ranks that read different data.")]
    samples_per_s: Annotated[float | None, doc("Samples per second of all ranks that read different data.")]
    steps_per_s: Annotated[float | None, doc("Steps per second.")]
    data_parallel_ranks: Annotated[
        int | None, doc("Ranks assumed to read different data; world size where nothing better is known.")
    ]
    sample: Annotated[str, doc("What was counted as a sample, as a clause; empty if not known.")] = ""


class Flops(msgspec.Struct, frozen=True):
    """Floating-point operations of the captured rank in the steady step, multiply-adds counted as two."""

    model: Annotated[
        int,
        doc("FLOPs the model needs: matrix products, attention (backward as 2x forward), convolutions."),
    ]
    executed: Annotated[int, doc("FLOPs executed, recomputation included.")]
    recomputed: Annotated[int, doc("FLOPs of activation recomputation (`Phase.RECOMPUTE`).")]
    dtype: Annotated[str, doc("Data type that does most of the FLOPs; MFU and HFU are held against its dense peak.")]
    peak_per_s: Annotated[float | None, doc("Dense peak of the process's GPUs for that type, FLOPs per second.")]
