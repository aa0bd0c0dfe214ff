"""Host memory that a job's offloading takes on each node, beside what the nodes have."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.composition.plan import Plan
from presim.composition.runtime.optimizer_offload import CPU_NS
from presim.errors import InputError
from presim.hardware.cluster import Cluster
from presim.units import GIB


@dataclasses.dataclass(frozen=True)
class HostUse:
    """What one rank keeps in host memory, and what it copies in a step."""

    activation_bytes: int = 0  # pinned buffers, at the peak
    optimizer_bytes: int = 0
    copied_bytes: int = 0  # activations, each way

    @property
    def bytes(self) -> int:
        """Both."""
        return self.activation_bytes + self.optimizer_bytes


def host_memory_notes(uses: Sequence[HostUse], plan: Plan, cluster: Cluster) -> list[str]:
    """A sentence on the fullest host; ``uses``: of a rank of each pipeline stage.

    Raises:
        InputError: a host has less memory.
    """
    if not any(use.bytes for use in uses):
        return []
    host = min(cluster.gpus_per_node, cluster.node.gpus)
    inside = cluster.world_size // len(uses)  # ranks of a stage
    fullest_bytes = max(
        sum(uses[rank // inside].bytes for rank in range(first, min(first + host, cluster.world_size)))
        for first in range(0, cluster.world_size, host)
    )
    capacity_bytes = cluster.node.host_memory_bytes
    remedies = "fewer blocks (--offload-activations), or no optimizer states (--offload-optimizer)"
    if fullest_bytes > capacity_bytes:
        raise InputError(
            f"offloading takes {fullest_bytes / GIB:,.1f} GiB of host memory for the {host} GPUs of a host, and a "
            f"host of {cluster.node.id} has {capacity_bytes / GIB:,.0f} GiB; offload {remedies}, or use more GPUs"
        )
    fullest = max(uses, key=lambda use: use.bytes)
    notes = [
        f"Offloading keeps up to {fullest.activation_bytes / GIB:,.2f} GiB of activations and "
        f"{fullest.optimizer_bytes / GIB:,.2f} GiB for the optimizer of a GPU in host memory: "
        f"{fullest_bytes / GIB:,.1f} of {capacity_bytes / GIB:,.0f} GiB of a host. Up to "
        f"{max(use.copied_bytes for use in uses) / GIB:,.2f} GiB of activations "
        "of a GPU are copied each way in a step. The bandwidth of host memory, which GPUs of a host share, is not "
        "modelled."
    ]
    if plan.offload_optimizer == "cpu":
        notes.append(
            f"The CPUs of a typical server update a billion numbers in {CPU_NS:g} s, which one DeepSpeed run with CPU "
            "Adam took (deepspeedai/DeepSpeed pull request 735). Other servers differ by several times: measure yours."
        )
    return notes
