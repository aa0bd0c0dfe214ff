"""Write a trace by hand: for tests, importers and generated workloads.

>>> from presim.trace.signatures import Gemm
>>> build = TraceBuilder()
>>> build.work(Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16"), host_ns=5_000)
>>> done = build.record(stream=0)
>>> build.event_sync(done)
>>> len(build.trace())
3
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import COLUMNS, Category, Kind, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Signature


def default_manifest() -> Manifest:
    """A single rank on a single GPU."""
    return Manifest(world_size=1, rank=0, gpu="h100-sxm", gpus_per_node=8, script="")


class TraceBuilder:
    """Appends entries to a trace and fills its tables."""

    def __init__(self, manifest: Manifest | None = None) -> None:
        self.manifest = manifest or default_manifest()
        self._rows: list[tuple[int, ...]] = []
        self._signatures: dict[Signature, int] = {}
        self._scopes: dict[str, int] = {}
        self._operators: dict[str, int] = {}
        self._sites: dict[str, int] = {}
        self._recordings = 0
        self._steps = 0

    def work(
        self,
        signature: Signature,
        *,
        stream: int = 0,
        host_ns: int = 0,
        scope: str = "",
        operator: str = "",
        phase: Phase = Phase.OTHER,
        launch_group: int = 0,
        replayed: bool = False,
        site: str = "",
    ) -> None:
        """Device work; a `Collective` becomes an entry of its own kind. ``replayed``: part of a CUDA graph's launch."""
        kind = Kind.COLLECTIVE if isinstance(signature, Collective) else Kind.WORK
        self._add(
            kind,
            stream=stream,
            host_ns=host_ns,
            phase=phase,
            object_=launch_group,
            value=int(replayed),
            signature=self._signatures.setdefault(signature, len(self._signatures)),
            scope=self._scopes.setdefault(scope, len(self._scopes)) if scope else -1,
            operator=self._operator(operator),
            site=self._sites.setdefault(site, len(self._sites)) if site else -1,
        )

    def record(self, *, stream: int, host_ns: int = 0) -> int:
        """Record an event on a stream; returns the serial that waits refer to."""
        self._recordings += 1
        self._add(Kind.EVENT_RECORD, stream=stream, host_ns=host_ns, object_=self._recordings)
        return self._recordings

    def wait(self, recording: int, *, stream: int, host_ns: int = 0) -> None:
        """The stream waits for a recording."""
        self._add(Kind.STREAM_WAIT, stream=stream, host_ns=host_ns, object_=recording)

    def event_sync(self, recording: int, *, host_ns: int = 0, operator: str = "") -> None:
        """The host waits for a recording."""
        self._add(Kind.EVENT_SYNC, host_ns=host_ns, object_=recording, operator=self._operator(operator))

    def _operator(self, name: str) -> int:
        return self._operators.setdefault(name, len(self._operators)) if name else -1

    def stream_sync(self, *, stream: int, host_ns: int = 0) -> None:
        """The host waits for a stream."""
        self._add(Kind.STREAM_SYNC, stream=stream, host_ns=host_ns)

    def device_sync(self, *, host_ns: int = 0) -> None:
        """The host waits for all streams."""
        self._add(Kind.DEVICE_SYNC, host_ns=host_ns)

    def alloc(
        self,
        address: int,
        size: int,
        *,
        host_ns: int = 0,
        category: Category = Category.OTHER,
        scope: str = "",
        phase: Phase = Phase.OTHER,
        gpu: int = 0,
    ) -> None:
        """Allocate a block of ``size`` bytes."""
        index = self._scopes.setdefault(scope, len(self._scopes)) if scope else -1
        self._add(Kind.ALLOC, stream=gpu, host_ns=host_ns, phase=phase, object_=address, value=size, scope=index)
        if category is not Category.OTHER:
            self.retag(address, category)

    def retag(self, address: int, category: Category) -> None:
        """Move the live block at the address to another category."""
        self._add(Kind.RETAG, object_=address, value=int(category))

    def free(self, address: int, size: int, *, host_ns: int = 0) -> None:
        """Free a block."""
        self._add(Kind.FREE, host_ns=host_ns, object_=address, value=size)

    def segment(self, address: int, size: int, *, freed: bool = False, gpu: int = 0) -> None:
        """Add a segment to the allocator, or release it to the device."""
        self._add(Kind.SEGMENT_FREE if freed else Kind.SEGMENT_ALLOC, stream=gpu, object_=address, value=size)

    def fetch(self, request: int, nanoseconds: int, *, is_cpu: bool = True, host_ns: int = 0) -> None:
        """Ask a data loader's worker for a batch that takes so long (`fetch_request`)."""
        self._add(Kind.FETCH, stream=int(not is_cpu), host_ns=host_ns, object_=request, value=nanoseconds)

    def fetch_wait(self, request: int, *, host_ns: int = 0) -> None:
        """The host waits for a batch."""
        self._add(Kind.FETCH_WAIT, host_ns=host_ns, object_=request)

    def step(self, *, host_ns: int = 0) -> None:
        """Mark the end of a step."""
        self._add(Kind.STEP, host_ns=host_ns, object_=self._steps)
        self._steps += 1

    def trace(self) -> Trace:
        """The trace so far."""
        rows = np.array(self._rows, np.int64).reshape(-1, len(COLUMNS))
        columns: dict[str, NDArray[np.generic]] = {
            name: rows[:, index].astype(dtype) for index, (name, dtype) in enumerate(COLUMNS.items())
        }
        return Trace(
            self.manifest,
            tuple(self._signatures),
            tuple(self._scopes),
            tuple(self._operators),
            columns,
            tuple(self._sites),
        )

    def _add(
        self,
        kind: Kind,
        *,
        stream: int = 0,
        host_ns: int = 0,
        phase: Phase = Phase.OTHER,
        object_: int = 0,
        value: int = 0,
        signature: int = -1,
        scope: int = -1,
        operator: int = -1,
        site: int = -1,
    ) -> None:
        self._rows.append((int(kind), int(phase), stream, signature, scope, operator, host_ns, object_, value, site))
