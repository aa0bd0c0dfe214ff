"""CPU time of calls to CUDA's libraries, by kind.

The emulated libraries return at once. The CPU time of a trace therefore excludes real library calls.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.calibration import value
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Copy, Gemm, Signature


@dataclasses.dataclass(frozen=True)
class CallCosts:
    """CPU time of a real call by its kind, ns. `presim.calibration` has the sources (host.call.*)."""

    launch: int = round(value("host.call.launch_ns"))  # kernels, memsets and all other calls
    product: int = round(value("host.call.product_ns"))
    transfer: int = round(value("host.call.transfer_ns"))
    collective: int = round(value("host.call.collective_ns"))
    event: int = round(value("host.call.event_ns"))

    def __post_init__(self) -> None:
        if min(dataclasses.astuple(self)) < 0:
            raise ValueError(f"CPU times of calls must not be negative; got {self}")

    def of(self, trace: Trace) -> NDArray[np.int64]:
        """CPU time of each entry's library call; 0 for other entries and for replays of CUDA graphs."""
        by_kind = np.zeros(len(Kind), np.int64)
        by_kind[[Kind.EVENT_RECORD, Kind.STREAM_WAIT]] = self.event
        by_kind[Kind.COLLECTIVE] = self.collective
        of_work = np.array([*map(self._of_work, trace.signatures), self.launch], np.int64)
        kind, signature = (trace.columns[name].astype(np.int64) for name in ("kind", "signature"))
        costs = np.where(kind == Kind.WORK, of_work[signature], by_kind[kind])
        from_a_graph = trace.mask(*_CALLS) & (trace.columns["value"] != 0)
        result: NDArray[np.int64] = np.where(from_a_graph, 0, costs)
        return result

    def _of_work(self, signature: Signature) -> int:
        if isinstance(signature, Gemm):
            return self.product
        return self.transfer if isinstance(signature, Copy) and signature.direction != "memset" else self.launch


_CALLS = (Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT)
TYPICAL_CALLS = CallCosts()
NO_CALLS = CallCosts(launch=0, product=0, transfer=0, collective=0, event=0)  # no launches on the host
