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
_LEAST, _MOST = 0.25, 4.0  # beyond, the probe was disturbed rather than the CPU that different


def host_factor(reference_host: bool, probe_ns: int = 0, server: float = 0.0, *, undisturbed: bool = True) -> float:
    """What host time is multiplied with to be a server's.

    ``reference_host``: it is the reference host's already. Else ``probe_ns`` is the loop's time where it was captured;
    where that was not taken either, time counts as it is. ``server``: the factor of its node; 0: not known.
    ``undisturbed``: what disturbs recurring stretches is taken out; else time is as it comes, and has more in it.
    """
    factor = server or TYPICAL_FACTOR
    if reference_host:
        return factor if undisturbed else round(factor / ORDINARY, 3)
    if probe_ns <= 0:
        return 1.0
    return round(min(max(factor / ORDINARY * REFERENCE_PROBE_NS / probe_ns, _LEAST), _MOST), 3)
