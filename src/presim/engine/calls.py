"""CPU time of calls to CUDA's libraries, by kind.

The emulated libraries return at once. The CPU time of a trace therefore excludes real library calls.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.hardware.constants import value
from presim.trace.schema import HostCall, Kind, Trace
from presim.trace.signatures import Copy, Gemm, Signature

Ints = NDArray[np.int64]

_MIB = 1 << 20
_LOCKED_BEFORE = _MIB  # bytes up to which the driver serves cudaHostAlloc from memory that it locked before


@dataclasses.dataclass(frozen=True)
class CallCosts:
    """CPU time of a real call by its kind, ns. `presim.hardware.constants` has the sources (host.call.*).

    The live clock reads the fields in this order (shim/core/live.h). ``_MiB``: for each MiB, beside that of the call.
    """

    launch: int = round(value("host.call.launch_ns"))  # kernels, memsets and all other calls
    product: int = round(value("host.call.product_ns"))
    transfer: int = round(value("host.call.transfer_ns"))
    collective: int = round(value("host.call.collective_ns"))
    event: int = round(value("host.call.event_ns"))
    device_alloc: int = round(value("host.call.device_alloc_ns"))  # cudaMalloc and the like
    device_alloc_MiB: int = round(value("host.call.device_alloc_MiB_ns"))
    device_free: int = round(value("host.call.device_free_ns"))
    device_free_MiB: int = round(value("host.call.device_free_MiB_ns"))
    lock: int = round(value("host.call.lock_ns"))  # of up to 1 MiB; larger blocks only cost their pages
    lock_MiB: int = round(value("host.call.lock_MiB_ns"))
    unlock: int = round(value("host.call.unlock_ns"))
    unlock_MiB: int = round(value("host.call.unlock_MiB_ns"))
    first_touch_MiB: int = round(value("host.call.first_touch_MiB_ns"))

    def __post_init__(self) -> None:
        if min(dataclasses.astuple(self)) < 0:
            raise ValueError(f"CPU times of calls must not be negative; got {self}")

    def of(self, trace: Trace) -> Ints:
        """CPU time of each entry's library call; 0 for other entries and for replays of CUDA graphs."""
        by_kind = np.zeros(len(Kind), np.int64)
        by_kind[[Kind.EVENT_RECORD, Kind.STREAM_WAIT]] = self.event
        by_kind[Kind.COLLECTIVE] = self.collective
        of_work = np.array([*map(self._of_work, trace.signatures), self.launch], np.int64)
        kind, signature = (trace.columns[name].astype(np.int64) for name in ("kind", "signature"))
        costs = np.where(kind == Kind.WORK, of_work[signature], by_kind[kind])
        from_a_graph = trace.mask(*_CALLS) & (trace.columns["value"] != 0)
        result: Ints = np.where(from_a_graph, 0, costs) + self.of_memory(trace)
        return result

    def of_memory(self, trace: Trace) -> Ints:
        """CPU time of each entry that takes or returns device memory, or works on pages of host memory; else 0.

        It is 0 for composed jobs. Their only step allocates memory that a running job allocated before.
        """
        result = np.zeros(len(trace), np.int64)
        entries = np.flatnonzero(trace.mask(Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE, Kind.HOST_CALL))
        if not len(entries) or trace.manifest.origin == "composed":
            return result
        kind, call, size = (trace.columns[name][entries].astype(np.int64) for name in ("kind", "object", "value"))
        choices = [
            (kind == Kind.SEGMENT_ALLOC, self.device_alloc, self.device_alloc_MiB),
            (kind == Kind.SEGMENT_FREE, self.device_free, self.device_free_MiB),
            (call == HostCall.FIRST_TOUCH, 0, self.first_touch_MiB),
            ((call == HostCall.LOCK) & (size <= _LOCKED_BEFORE), self.lock, 0),
            (call == HostCall.LOCK, 0, self.lock_MiB),
            (size <= _LOCKED_BEFORE, self.unlock, 0),
        ]
        conditions = [applies for applies, _, _ in choices]
        fixed = np.select(conditions, [ns for _, ns, _ in choices], 0)
        of_each_MiB = np.select(conditions, [ns for _, _, ns in choices], self.unlock_MiB)
        result[entries] = fixed + np.rint(of_each_MiB * size / _MIB).astype(np.int64)
        return result

    def _of_work(self, signature: Signature) -> int:
        if isinstance(signature, Gemm):
            return self.product
        return self.transfer if isinstance(signature, Copy) and signature.direction != "memset" else self.launch


_CALLS = (Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT)
TYPICAL_CALLS = CallCosts()
NO_CALLS = CallCosts(**{field.name: 0 for field in dataclasses.fields(CallCosts)})  # no launches on the host
