"""Options of the simulation: CPU time of hosts, latencies, contention."""

from __future__ import annotations

import dataclasses

from presim.cost.overlap import ANALYTIC, OverlapModel
from presim.engine.calls import NO_CALLS, TYPICAL_CALLS, CallCosts
from presim.hardware.constants import value
from presim.hardware.host import host_factor
from presim.trace.schema import Manifest


@dataclasses.dataclass(frozen=True)
class Options:
    """Host behaviour; times in ns. `presim.hardware.constants` has sources of latencies and queue depth (device.*)."""

    host_factor: float | None = None  # host time on the target / in the trace; None: that of a typical server
    calls: CallCosts = TYPICAL_CALLS  # CPU time of real library calls, which traces do not include
    launch_latency_ns: int = round(value("device.launch_latency_ns"))  # from a launch to its earliest start
    sync_latency_ns: int = round(value("device.sync_latency_ns"))  # from an end on the device to the waiting host
    queue_depth: int = round(value("device.queue_depth"))  # launches a stream holds before the next blocks the host
    cores_per_rank: float = 0.0  # CPU cores of a node / ranks on it; 0: not limited
    contention: bool = True  # overlapping work slows each other according to its resource demands
    overlap: OverlapModel = ANALYTIC  # what kernels lose beside communication

    def __post_init__(self) -> None:
        times = (self.launch_latency_ns, self.sync_latency_ns)
        if not ((self.host_factor is None or self.host_factor >= 0) and min(times) >= 0 and self.queue_depth >= 1):
            raise ValueError(f"host times must not be negative and a queue must hold at least 1 launch; got {self}")

    def host_factor_of(self, manifest: Manifest) -> float:
        """Factor on the host time of a trace."""
        if self.host_factor is not None:
            return self.host_factor
        return host_factor(manifest.reference_host, manifest.host_probe_ns)

    @classmethod
    def of(
        cls,
        *,
        host_factor: float | None = None,
        host_time: bool = True,
        contention: bool = True,
        overlap: OverlapModel = ANALYTIC,
    ) -> Options:
        """Options; without ``host_time`` CPU time and library calls take no time."""
        if host_time:
            return cls(host_factor=host_factor, contention=contention, overlap=overlap)
        return cls(host_factor=0.0, calls=NO_CALLS, contention=contention, overlap=overlap)
