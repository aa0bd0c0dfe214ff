"""Assumptions of the simulation about hosts, and effects that it leaves out."""

from __future__ import annotations

import dataclasses

from presim.engine.calls import NO_CALLS, TYPICAL_CALLS, CallCosts
from presim.hardware.host import host_factor
from presim.trace.schema import Manifest


@dataclasses.dataclass(frozen=True)
class Options:
    """Host behaviour; times in ns.

    The defaults are round figures: a kernel takes about 5 us from the launch call to its start on an idle stream, of
    which the call itself is 2 us. A public profile of an H100 server (see `presim.hardware.host`) has 4.8 us at least,
    5.7 us in the tenth percentile and 6.5 us in the median, and 3.3 us for the call, with the tracer's own cost in it.
    """

    host_factor: float | None = None  # host time on the target / in the trace; None: a typical server's
    calls: CallCosts = TYPICAL_CALLS  # CPU time of real library calls, which the emulated ones do not spend
    launch_latency_ns: int = 3_000  # from a launch to its earliest start on the device
    sync_latency_ns: int = 3_000  # from an end on the device to the host that waits for it
    queue_depth: int = 1024  # launches a stream holds before the next one blocks the host
    contention: bool = True  # what runs at the same time slows each other, as the prices' demands say

    def __post_init__(self) -> None:
        times = (self.launch_latency_ns, self.sync_latency_ns)
        if not ((self.host_factor is None or self.host_factor >= 0) and min(times) >= 0 and self.queue_depth >= 1):
            raise ValueError(f"host times are not negative and a queue holds at least one launch; got {self}")

    def host_factor_of(self, manifest: Manifest) -> float:
        """What host time of a trace is multiplied with."""
        if self.host_factor is not None:
            return self.host_factor
        return host_factor(manifest.reference_host, manifest.host_probe_ns)

    @classmethod
    def of(cls, *, host_factor: float | None = None, host_time: bool = True, contention: bool = True) -> Options:
        """Without ``host_time`` the host takes none at all: neither its CPU time nor its launches."""
        if host_time:
            return cls(host_factor=host_factor, contention=contention)
        return cls(host_factor=0.0, calls=NO_CALLS, contention=contention)
