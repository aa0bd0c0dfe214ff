"""A pool of cached KV blocks that all engines share, such as LMCache's server or Mooncake's store."""

from __future__ import annotations

import dataclasses

from presim.errors import InputError
from presim.serving.deployments.transfers import shared_bytes_per_s
from presim.serving.engines.engine import Limits
from presim.serving.steps.engine_memory import MOST_BLOCKS, bytes_from_host_per_s, tier_latency_ns
from presim.serving.steps.times import PricedEngine
from presim.units import GIB


@dataclasses.dataclass(frozen=True)
class SharedKv:
    """What the pool holds, and how fast it is."""

    gib: float
    gbps: float | None = (
        None  # GB/s of the pool's own links; None: spread over the engines' nodes, their ports limit it
    )

    def __post_init__(self) -> None:
        """Raise InputError on a capacity or bandwidth that is not above 0."""
        if self.gib <= 0 or (self.gbps is not None and self.gbps <= 0):
            raise InputError(
                f"the shared pool needs a capacity and a bandwidth above 0, not {self.gib:g} GiB and "
                f"{self.gbps or 0:g} GB/s; correct them"
            )

    def blocks(self, engine: PricedEngine) -> int:
        """Blocks of an engine that the pool holds."""
        count = int(self.gib * GIB // _block_bytes(engine))
        if count > MOST_BLOCKS:
            raise InputError(
                f"{count:,} KV blocks in the shared pool exceed the limit of {MOST_BLOCKS:,} for simulation; use a "
                "larger --block-size or less of --kv-shared"
            )
        if not count:
            raise InputError(
                f"--kv-shared of {self.gib:g} GiB does not hold a KV block of {_block_bytes(engine):,} bytes; use more"
            )
        return count

    def block_ns(self, engine: PricedEngine) -> int:
        """Time of a block over the pool's own links; 0: they are no limit."""
        return round(_block_bytes(engine) / self.gbps) if self.gbps else 0


def _block_bytes(engine: PricedEngine) -> int:
    """Bytes of a block on all ranks of an engine."""
    return engine.memory.block * engine.plan.tp * engine.plan.pp


def with_shared_kv(engine: PricedEngine, engines: int) -> Limits:
    """An engine's limits with the times of its blocks to and from a pool that so many engines share.

    Each GPU moves its part of a block through its own port and over its own link to the node's memory.
    """
    tiers, block_bytes = engine.limits.tiers, engine.memory.block
    reading = dataclasses.replace(
        tiers,
        host_block_ns=tiers.host_block_ns or round(block_bytes / bytes_from_host_per_s(engine.cluster) * 1e9),
        latency_ns=tiers.latency_ns or tier_latency_ns(),
        shared_block_ns=round(block_bytes / shared_bytes_per_s(engine, engines) * 1e9),
    )
    return dataclasses.replace(engine.limits, tiers=reading)
