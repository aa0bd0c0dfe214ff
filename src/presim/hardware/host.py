"""CPU speed of GPU servers relative to the reference host. Captures express host time in its time.

A capture converts CPU time in three steps:

1. It measures the speed of its machine continuously and divides CPU time by it (`shim/core/pace.h`).
2. It divides out the slowdown of known host work by other processes (`presim.trace.capture_speed`).
3. It removes noise from recurring stretches of host work (`presim.trace.host_noise`).

The factor from the reference host to a server is that of its node type (`Node.host_factor`, with its source), else that
of a typical current server (docs/decisions/host-factor.md).

Older captures have raw CPU time and the time of a short Python loop, which takes 545 us on the reference host.
"""

from __future__ import annotations

from presim.hardware.constants import value

TYPICAL_FACTOR = value("host.server_factor")
ORDINARY = value("host.ordinary_disturbance")
REFERENCE_PROBE_NS = round(value("host.reference_probe_ns"))
_LEAST, _MOST = 0.25, 4.0  # a larger ratio means that the probe was disturbed


def host_factor(reference_host: bool, probe_ns: int = 0, server: float = 0.0, *, undisturbed: bool = True) -> float:
    """Factor from captured host time to the host time of a GPU server.

    ``reference_host``: captured time is already in time of the reference host. Otherwise ``probe_ns`` is the time of
    the probe loop at capture; 0 means unknown, and host time is not converted. ``server``: the node's host factor; 0:
    unknown. ``undisturbed``: noise has been removed from recurring stretches.
    """
    factor = server or TYPICAL_FACTOR
    if reference_host:
        return factor if undisturbed else round(factor / ORDINARY, 3)
    if probe_ns <= 0:
        return 1.0
    return round(min(max(factor / ORDINARY * REFERENCE_PROBE_NS / probe_ns, _LEAST), _MOST), 3)
