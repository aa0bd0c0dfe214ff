"""What holds the memory."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.says import says


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
