"""A simulated job as profiles of PyTorch's profiler: one Chrome trace per rank, in Kineto's format.

Perfetto, TensorBoard's plug-in, Holistic Trace Analysis and `presim import` read these files.

* The host is a process with one thread: steps (``ProfilerStep#``), operators, and calls of the CUDA runtime.
* The GPU is a process with one thread per stream: kernels, copies, and waits for events. A call and the work it
  launched share a ``correlation``.
* A collective starts when its stream is ready for it, like NCCL's kernels, which wait for other ranks while they run.
* Further data is in arguments with the prefix ``presim``, which other tools ignore.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.hardware import Cluster
from presim.report import kineto_fields as fields
from presim.report.kineto_fields import Json
from presim.system.files import make_folder, packed, write_file
from presim.trace.collective import Collective
from presim.trace.representatives import Representatives
from presim.trace.schema import WAITS, Kind
from presim.trace.signatures import Copy, Kernel, Signature, family

_ONE_BLOCK = (1, 1, 1)
_CALL_NS = 2_000  # drawn length of a launch call, unless the next call starts earlier
_SYNCS = {
    Kind.EVENT_SYNC: "cudaEventSynchronize",
    Kind.STREAM_SYNC: "cudaStreamSynchronize",
    Kind.DEVICE_SYNC: "cudaDeviceSynchronize",
}


def write(
    ranks: Mapping[int, PricedTrace],
    timelines: Mapping[int, Timeline],
    host_ns: Mapping[int, np.ndarray],
    representatives: Representatives,
    cluster: Cluster,
    folder: str | os.PathLike[str],
) -> list[Path]:
    """Write the profiles of all simulated ranks and return the files.

    ``host_ns``: by rank, the CPU time before each entry on the cluster's hosts.
    """
    target = Path(folder)
    make_folder(target)
    files = []
    for rank, priced in sorted(ranks.items()):
        path = target / f"rank-{rank}.pt.trace.json.gz"
        write_file(path, encode(priced, timelines[rank], host_ns[rank], cluster, representatives.others.get(rank, ())))
        files.append(path)
    return files


def encode(
    priced: PricedTrace,
    timeline: Timeline,
    host_ns: np.ndarray,
    cluster: Cluster,
    stands_for: Sequence[int] = (),
    latency_ns: int = 3_000,
) -> bytes:
    """The compressed profile of one rank.

    ``stands_for``: the ranks that it represents. ``latency_ns``: from a launch to its earliest start on the device.
    """
    manifest = priced.trace.manifest
    content = {
        "schemaVersion": 1,
        "deviceProperties": [_device(cluster)],
        "cupti_version": 24,
        "cuda_runtime_version": 12080,
        "cuda_driver_version": 12080,
        # With spaces, as PyTorch prints it: Holistic Trace Analysis finds the rank by a pattern.
        "distributedInfo": msgspec.Raw(json.dumps(fields.distributed(manifest)).encode()),
        "record_shapes": 1,
        "with_stack": 0,
        "traceName": f"presim rank {manifest.rank}",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "presim": {
            "gpu": cluster.gpu.id,
            "node": cluster.node.id,
            "fabric": cluster.fabric.id,
            "gpus_per_node": cluster.gpus_per_node,
            "stands_for": list(stands_for),
        },
        "traceEvents": list(_Writer(priced, timeline, host_ns, latency_ns).events()),
    }
    return packed(msgspec.json.encode(content))


def _device(cluster: Cluster) -> Json:
    gpu = cluster.gpu
    return {"id": 0, "name": gpu.name, "totalGlobalMem": gpu.memory_bytes}


@dataclasses.dataclass
class _Call:
    """One call of the host; its end is filled in later."""

    entry: int
    start_ns: int
    end_ns: int


class _Writer:
    """Builds the events of a trace in one pass. The index of an entry is its correlation id."""

    def __init__(self, priced: PricedTrace, timeline: Timeline, host_ns: np.ndarray, latency_ns: int) -> None:
        self._latency_ns = latency_ns
        self._trace, self._timeline = priced.trace, timeline
        manifest = priced.trace.manifest
        self._host = 1000 + manifest.rank
        self._device = manifest.rank % max(manifest.gpus_per_node, 1)
        self._host_ns = host_ns.astype(np.int64).tolist()
        names = ("kind", "stream", "object", "signature", "operator", "phase", "value")
        self._columns = {name: priced.trace.columns[name].tolist() for name in names}
        self._start, self._end = timeline.start_ns.tolist(), timeline.end_ns.tolist()
        self._issue = timeline.issue_ns.tolist()
        self._recorded: dict[int, tuple[int, int]] = {}  # serial -> entry of the recording, its stream
        self._ends: dict[int, int] = {}  # stream -> end of its work so far
        self._texts = [msgspec.json.encode(signature).decode() for signature in priced.trace.signatures]

    def events(self) -> Iterator[Json]:
        """All events: host events in order, each followed by the work that it launched."""
        yield from fields.names(self._host, self._device, sorted(set(self._columns["stream"])))
        step, number = 0, 0
        for call in self._calls():
            kind = self._columns["kind"][call.entry]
            if kind == Kind.STEP:
                yield self._complete("user_annotation", f"ProfilerStep#{number}", step, call.start_ns, {})
                step, number = call.start_ns, number + 1
            elif kind in (Kind.WORK, Kind.COLLECTIVE):
                yield from self._launch(call)
            elif kind == Kind.EVENT_RECORD:
                self._recorded[self._columns["object"][call.entry]] = call.entry, self._columns["stream"][call.entry]
                self._hold(call.entry)
                yield self._runtime("cudaEventRecord", call)
            elif kind == Kind.STREAM_WAIT:
                yield self._runtime("cudaStreamWaitEvent", call)
                yield from self._sync("Stream Wait Event", call)
                self._hold(call.entry)
            elif kind in WAITS:
                yield self._runtime(_SYNCS[Kind(kind)], call)
                yield from self._sync(_SYNCS[Kind(kind)].removeprefix("cuda").replace("Synchronize", " Sync"), call)

    def _calls(self) -> Iterator[_Call]:
        """Calls with their times. A call starts when the CPU work before it is done."""
        calls = (*WAITS, Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.STEP)
        now, last, waiting = 0, -1, 0
        pending: _Call | None = None
        for entry, kind in enumerate(self._columns["kind"]):
            waiting += self._host_ns[entry]
            if kind not in calls:
                continue
            start = max(now + waiting, last)
            end = start
            if kind in WAITS:
                end = max(self._end[entry], start)
            elif kind == Kind.STEP:
                start = end = max(start, last + 1)
            else:
                end = max(self._issue[entry], start)  # later than its start if the queue was full
            if pending is not None:
                pending.end_ns = max(pending.end_ns, min(pending.start_ns + _CALL_NS, start))
                yield pending
            pending = _Call(entry, start, end)
            now, last, waiting = end, start, 0
        if pending is not None:
            yield pending

    def _launch(self, call: _Call) -> Iterator[Json]:
        entry = call.entry
        signature = self._trace.signatures[self._columns["signature"][entry]]
        operator = self._columns["operator"][entry]
        name = self._trace.operators[operator] if operator >= 0 else f"presim::{family(signature)}"
        shapes = fields.shapes(signature)
        shared = (
            fields.communication(signature, self._trace.manifest.groups) if isinstance(signature, Collective) else {}
        )
        arguments = {"External id": entry + 1, "Ev Idx": entry, **shapes, **shared}
        called = "record_param_comms" if shared else name
        yield self._complete("cpu_op", called, call.start_ns, call.end_ns, arguments)
        copy = isinstance(signature, Copy)
        runtime = ("cudaMemsetAsync" if signature.direction == "memset" else "cudaMemcpyAsync") if copy else ""
        if self._columns["value"][entry]:
            runtime = "cudaGraphLaunch"
        yield self._runtime(runtime or "cudaLaunchKernel", call)
        yield self._flow("s", self._host, self._host, call.start_ns, entry)
        yield self._on_device(entry, signature, name, shared)
        yield self._flow("f", self._device, self._tid(entry), self._start[entry], entry)

    def _on_device(self, entry: int, signature: Signature, operator: str, shared: Json) -> Json:
        arguments = {
            "External id": entry + 1,
            "device": self._device,
            "context": 1,
            "stream": self._tid(entry),
            "correlation": entry + 1,
            **shared,
            "presim signature": self._texts[self._columns["signature"][entry]],
            "presim phase": self._columns["phase"][entry],
            "presim launch": self._columns["object"][entry],
            "presim operator": operator if self._columns["operator"][entry] >= 0 else "",
        }
        category, name = "kernel", fields.kernel(signature, operator)
        if isinstance(signature, Copy):
            category = "gpu_memset" if signature.direction == "memset" else "gpu_memcpy"
            arguments["bytes"] = signature.bytes
        else:
            grid, block = _ONE_BLOCK, _ONE_BLOCK
            if isinstance(signature, Kernel):  # the `block` of a sparse product is another one
                grid, block = signature.grid, signature.block
            arguments |= {"queued": 0, "grid": list(grid), "block": list(block), "registers per thread": 0}
        start, end = self._start[entry], self._end[entry]
        if isinstance(signature, Collective):
            ready = max(self._ends.get(self._columns["stream"][entry], 0), self._issue[entry] + self._latency_ns)
            start = min(start, ready)
        self._hold(entry)
        return self._event(category, name, self._device, self._tid(entry), start, end, arguments)

    def _sync(self, name: str, call: _Call) -> Iterator[Json]:
        """A wait with its recording, as CUPTI records it."""
        entry = call.entry
        kind, serial = self._columns["kind"][entry], self._columns["object"][entry]
        arguments: Json = {
            "cuda_sync_kind": name,
            "stream": -1 if kind == Kind.DEVICE_SYNC else self._tid(entry),
            "correlation": entry + 1,
            "device": self._device,
            "context": 1,
        }
        if kind in (Kind.STREAM_WAIT, Kind.EVENT_SYNC):
            if serial not in self._recorded:
                return
            recorded, stream = self._recorded[serial]
            arguments["wait_on_stream"] = fields.FIRST_STREAM + stream
            arguments["wait_on_cuda_event_record_corr_id"] = recorded + 1
            arguments["wait_on_cuda_event_id"] = serial
        start, end = self._start[entry], self._end[entry]
        yield self._event("cuda_sync", name, self._device, self._tid(entry), start, end, arguments)

    def _runtime(self, name: str, call: _Call) -> Json:
        arguments = {"External id": call.entry + 1, "cbid": 211, "correlation": call.entry + 1}
        return self._complete("cuda_runtime", name, call.start_ns, call.end_ns, arguments)

    def _complete(self, category: str, name: str, start_ns: int, end_ns: int, arguments: Json) -> Json:
        return self._event(category, name, self._host, self._host, start_ns, end_ns, arguments)

    def _event(self, category: str, name: str, pid: int, tid: int, start_ns: int, end_ns: int, arguments: Json) -> Json:
        return {
            "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start_ns / 1000,
            "dur": (end_ns - start_ns) / 1000, "args": arguments,
        }  # fmt: skip

    def _flow(self, phase: str, pid: int, tid: int, at_ns: int, entry: int) -> Json:
        event: Json = {"ph": phase, "id": entry + 1, "pid": pid, "tid": tid, "ts": at_ns / 1000}
        return {**event, "cat": "ac2g", "name": "ac2g", **({"bp": "e"} if phase == "f" else {})}

    def _hold(self, entry: int) -> None:
        """Mark the stream as busy until the end of this entry. A stream wait ends when it takes effect."""
        stream = self._columns["stream"][entry]
        self._ends[stream] = max(self._ends.get(stream, 0), self._end[entry])

    def _tid(self, entry: int) -> int:
        return fields.FIRST_STREAM + int(self._columns["stream"][entry])
