"""CPU speed of GPU servers relative to the reference host, in whose time captures count host time.

A capture measures all along how fast its machine is at what hosts of GPUs do, and divides CPU time by that
(`shim/core/pace.h`). How much longer known stretches of host work took than on a machine alone is divided out
(`presim.trace.capture_speed`), and of stretches that recur what disturbed them (`presim.trace.host_noise`). The factor
from there to a server is its node's (`Node.host_factor`, with its source), else that of a typical server of today.
Where it comes from: docs/decisions/host-factor.md.

Captures from before counted CPU time as it was, and timed a short loop of Python once, which took 545 us on the
reference host.
"""

from __future__ import annotations

from presim.calibration import value

TYPICAL_FACTOR = value("host.server_factor")
ORDINARY = value("host.ordinary_disturbance")
REFERENCE_PROBE_NS = round(value("host.reference_probe_ns"))
_LEAST, _MOST = 0.25, 4.0  # a larger ratio means that the probe was disturbed


def host_factor(reference_host: bool, probe_ns: int = 0, server: float = 0.0, *, undisturbed: bool = True) -> float:
    """The factor from captured host time to the host time of a GPU server.

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
