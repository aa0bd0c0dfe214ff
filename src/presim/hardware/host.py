"""How much longer or shorter a typical GPU server's CPU takes for what the capturing machine's CPU did.

A capture times a short loop of Python (`host_probe_ns` in the manifest). What the same loop takes on a typical server
is not published anywhere; it follows from a public PyTorch profile of an H100 server (AMD-AGI/TraceLens,
tests/traces/h100, BERT-small, one forward pass under torch.profiler with stacks, shapes and memory): 4.01 ms from its
first operator to its last, 0.39 ms of it in the CUDA runtime. The same pass under the same profiler took 2.61 to
2.92 ms (best of 40, three runs, PyTorch 2.14, emulated device) on a machine whose probe was 545 us: its CPU is 1.34
times as fast.

One trace, another version of PyTorch: this is within a quarter at best, and CPUs of GPU servers differ by as much.
"""

from __future__ import annotations

TYPICAL_PROBE_NS = 730_000  # 545 us x 1.34
PROBE_ITERATIONS = 20_000
_LEAST, _MOST = 0.25, 4.0  # beyond, the probe was disturbed rather than the CPU that different


def host_factor(probe_ns: int) -> float:
    """CPU time on a typical GPU server over that on the machine with this probe; 1 where there was none."""
    if probe_ns <= 0:
        return 1.0
    return round(min(max(TYPICAL_PROBE_NS / probe_ns, _LEAST), _MOST), 3)
