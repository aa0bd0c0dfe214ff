"""Device memory and what holds it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc

OTHER_PROCESSES = "other processes"  # first words of the name of an estimate of what these hold on the GPU


class Estimate(msgspec.Struct, frozen=True):
    """Memory that the device holds and the allocator does not know of."""

    name: Annotated[str, doc("Name of the item.")]
    bytes: Annotated[int, doc("Estimated size.")]
    source: Annotated[str, doc("Where the estimate comes from.")]


class Held(msgspec.Struct, frozen=True):
    """Memory held at the peak of allocated memory, by some name."""

    name: Annotated[str, doc("Category or module scope.")]
    bytes: Annotated[int, doc("Bytes in live blocks.")]
    blocks: Annotated[int, doc("Number of live blocks.")]


class ModulePeak(msgspec.Struct, frozen=True):
    """Peak of allocated memory while a module ran in one part of the steady step; numbered siblings are merged.

    The figures are those of the fullest run of it. Submodules are part of it.
    """

    path: Annotated[str, doc("Module path, with * for the numbers of siblings that were merged.")]
    depth: Annotated[int, doc("Depth in the tree, 0 for the top.")]
    instances: Annotated[int, doc("Modules merged into this line.")]
    phase: Annotated[str, doc("forward, recompute or backward.")]
    peak_bytes: Annotated[int, doc("Largest sum of live blocks while it ran.")]
    before_bytes: Annotated[int, doc("Sum of live blocks when it started.")]
    after_bytes: Annotated[int, doc("Sum of live blocks when it ended.")]
    new_bytes: Annotated[int, doc("Part of peak_bytes in blocks that were allocated since it started.")]
    alive: Annotated[list[Held], doc("What was alive at its peak, by category, largest first.")]


class MemoryTimeline(msgspec.Struct, frozen=True):
    """Memory over the steady step, downsampled so that every peak survives."""

    time_s: Annotated[
        list[float], doc("Seconds since the start of the simulation, when the device reaches the allocation.")
    ]
    allocated_bytes: Annotated[list[int], doc("Largest allocated value up to the next point.")]
    reserved_bytes: Annotated[list[int], doc("Largest reserved value up to the next point.")]


class Memory(msgspec.Struct, frozen=True):
    """Device memory of the fullest captured rank, as PyTorch's caching allocator counts it."""

    fits: Annotated[
        bool | None,
        doc("Whether the job fits the device; None where nothing was allocated or the script failed first."),
    ]
    verdict: Annotated[str, doc("One sentence: fits or not, by how much, and how sure that is.")]
    advice: Annotated[str, doc("Advice on freeing memory if the job does not fit; else empty.")]
    peak_allocated_bytes: Annotated[
        int, doc("Largest sum of live blocks over the whole run (torch.cuda.max_memory_allocated).")
    ]
    peak_reserved_bytes: Annotated[
        int, doc("Largest sum of segments over the whole run (torch.cuda.max_memory_reserved).")
    ]
    step_peak_allocated_bytes: Annotated[int, doc("The same within the steady step.")]
    step_peak_reserved_bytes: Annotated[int, doc("The same within the steady step.")]
    device_total_bytes: Annotated[int, doc("Memory of the device.")]
    headroom_bytes: Annotated[
        int,
        doc("device_total - peak_reserved - beyond_allocator - requested; negative where it does not fit."),
    ]
    beyond_allocator: Annotated[list[Estimate], doc("Device memory outside the allocator, as named estimates.")]
    by_category: Annotated[list[Held], doc("Allocated memory at the peak, by category.")]
    by_module: Annotated[list[Held], doc("Allocated memory at the peak, by module scope; numbered siblings merged.")]
    requested_bytes: Annotated[
        int | None, doc("Size of the allocation that failed, where the script ran out of memory.")
    ]
    timeline: Annotated[MemoryTimeline, doc("Memory over the steady step.")]
    modules: Annotated[
        list[ModulePeak],
        doc("Peaks of each module in forward, recomputation and backward, depth first; empty in brief results."),
    ] = []
    pinned_host_bytes: Annotated[
        int | None,
        doc("Peak of host memory that the process locks (cudaHostAlloc, cudaHostRegister); null where not captured."),
    ] = None

    @property
    def outside_allocator_bytes(self) -> int:
        """Memory of libraries, the driver and other processes."""
        return sum(estimate.bytes for estimate in self.beyond_allocator)

    @property
    def used_bytes(self) -> int:
        """Memory of the device in use at the peak: reserved by the allocator, and outside of it."""
        return self.peak_reserved_bytes + self.outside_allocator_bytes
