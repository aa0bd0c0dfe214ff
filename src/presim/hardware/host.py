"""How much longer a typical GPU server's CPU takes than the reference host, in whose time captures count host time.

A capture measures all along how fast its machine is at what hosts of GPUs do, and divides CPU time by that
(`shim/core/pace.h`): what else the machine does, and which machine it is, then makes little difference. The factor
from there to a typical server is not published anywhere. It follows from a public PyTorch profile of an H100 server
(AMD-AGI/TraceLens, tests/traces/h100, BERT-small, one forward pass under torch.profiler with stacks, shapes and
memory): 4.01 ms from its first operator to its last, 0.39 ms of it in the CUDA runtime. The same pass under the same
profiler took 2.61 to 2.92 ms (best of 40, three runs, PyTorch 2.14, emulated device) on the reference host: it is 1.34
times as fast. One trace, another version of PyTorch: this is within a quarter at best, and CPUs of GPU servers differ
by as much.

Captures from before counted CPU time as it was, and timed a short loop of Python once, which took 545 us on the
reference host.
"""

from __future__ import annotations

TYPICAL_FACTOR = 1.34
REFERENCE_PROBE_NS = 545_000
_LEAST, _MOST = 0.25, 4.0  # beyond, the probe was disturbed rather than the CPU that different


def host_factor(reference_host: bool, probe_ns: int = 0) -> float:
    """What host time is multiplied with to be a typical GPU server's.

    ``reference_host``: it is the reference host's already. Else ``probe_ns`` is the loop's time where it was captured;
    where that was not taken either, time counts as it is.
    """
    if reference_host:
        return TYPICAL_FACTOR
    if probe_ns <= 0:
        return 1.0
    return round(min(max(TYPICAL_FACTOR * REFERENCE_PROBE_NS / probe_ns, _LEAST), _MOST), 3)
