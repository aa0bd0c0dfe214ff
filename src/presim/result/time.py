"""Where a step's time goes: by kind, collective, operator and module."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc

OUTSIDE_MODULES = "(outside modules)"  # the path of work that belongs to no module


class Slice(msgspec.Struct, frozen=True):
    """A named part of a whole."""

    name: Annotated[str, doc("Name of the part.")]
    seconds: Annotated[float, doc("Seconds in the steady step.")]
    share: Annotated[float, doc("Share of the step time.")]


class Time(msgspec.Struct, frozen=True):
    """Where the steady step's time goes on the captured rank.

    ``compute_s + exposed_communication_s + exposed_copy_s + host_bound_s + idle_s`` is the step time.
    """

    compute_s: Annotated[float, doc("A compute stream runs kernels.")]
    communication_s: Annotated[float, doc("Some collective or send/recv runs, hidden or not.")]
    exposed_communication_s: Annotated[
        float, doc("The compute streams wait while communication runs, or waits for other ranks.")
    ]
    waiting_s: Annotated[
        float, doc("The part of that in which a collective waits for ranks that are late: it moves nothing yet.")
    ]
    copy_s: Annotated[float, doc("Some copy between host and device or between devices runs, hidden or not.")]
    exposed_copy_s: Annotated[
        float, doc("The compute streams wait while only copies, or helper kernels of other streams, run.")
    ]
    host_bound_s: Annotated[
        float, doc("The compute streams are empty because the host has not issued their next kernel yet.")
    ]
    idle_s: Annotated[
        float,
        doc("Nothing runs for another reason: launch latency after a wait, the host returning from a synchronisation."),
    ]
    contention_s: Annotated[
        float,
        doc(
            "The part of compute_s, exposed_communication_s and exposed_copy_s by which work took longer because of "
            "what ran beside it."
        ),
    ]
    shared_ports_s: Annotated[
        float,
        doc("The part of contention_s in which groups shared the network ports of a node, or links of its fabric."),
    ]
    compute_streams: Annotated[list[int], doc("Indices of the streams taken as compute streams.")]
    by_phase: Annotated[
        list[Slice],
        doc("Compute and exposed copies by phase of the program: forward, recompute, backward, optimizer, other."),
    ]


class Collective(msgspec.Struct, frozen=True):
    """All calls of one kind in one process group within the steady step."""

    group: Annotated[str, doc("Name of the process group.")]
    group_size: Annotated[int, doc("Ranks in the group.")]
    kind: Annotated[str, doc("all_reduce, all_gather, reduce_scatter, …")]
    count: Annotated[int, doc("Calls.")]
    bytes: Annotated[int, doc("Bytes as nccl-tests counts them, of uneven exchanges the busier direction, summed.")]
    seconds: Annotated[float, doc("Sum of the calls' durations, once all their ranks are there.")]
    exposed_s: Annotated[
        float, doc("The part of exposed communication that falls to these calls, waiting for other ranks included.")
    ]
    algorithm_GBps: Annotated[float | None, doc("bytes / seconds / 10^9.")]


class Operator(msgspec.Struct, frozen=True):
    """Device time of one operator, or of one family of signatures, within the steady step."""

    name: Annotated[str, doc("The operator, e.g. aten::mm, or the signature family, e.g. gemm.")]
    count: Annotated[int, doc("Launches.")]
    seconds: Annotated[float, doc("Sum of durations on the device, including overlap.")]
    critical_s: Annotated[float, doc("Its part of the step time; work hidden behind other work does not count.")]
    share: Annotated[float, doc("critical_s over the step time.")]
    flops: Annotated[int, doc("FLOPs executed.")]
    bytes: Annotated[int, doc("Bytes moved, where the signatures know them.")]


class Module(msgspec.Struct, frozen=True):
    """Device time within one module scope in the steady step; numbered siblings are merged (``layers.*``).

    Listed depth first, so that indentation by ``depth`` gives the tree.
    """

    path: Annotated[str, doc("Module path, with * for the numbers of siblings that were merged.")]
    depth: Annotated[int, doc("Depth in the tree, 0 for the top.")]
    instances: Annotated[int, doc("Modules merged into this line.")]
    seconds: Annotated[float, doc("Sum of durations on the device, submodules and communication included.")]
    critical_s: Annotated[float, doc("Its part of the step time; work hidden behind other work does not count.")]
    self_s: Annotated[float, doc("seconds without submodules.")]
    forward_s: Annotated[float, doc("Part of seconds in the forward pass.")]
    backward_s: Annotated[float, doc("Part of seconds in the backward pass.")]
    recompute_s: Annotated[float, doc("Part of seconds in recomputation.")]
    communication_s: Annotated[float, doc("Part of seconds that is communication.")]
