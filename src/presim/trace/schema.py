"""The Trace: the calls that one rank made to its device, in the order in which its host issued them.

Entries are columns (numpy), because a step has tens of thousands of them. The columns are:

========== ======= ==========================================================================
column     dtype   meaning
========== ======= ==========================================================================
kind       uint8   `Kind`
phase      uint8   `Phase` of the program when the host asked
stream     uint16  index of the stream; 0 is the default stream; of memory: GPU of the process, from 0
signature  int32   index into ``signatures`` (`Kind.WORK`, `Kind.COLLECTIVE`), else -1
scope      int32   index into ``scopes`` (module path), or -1
operator   int32   index into ``operators``, or -1
site       int32   of a collective: index into ``sites``, the line that calls it, or -1
host_ns    int64   CPU time the process spent since the previous entry
object     int64   see `Kind`
value      int64   see `Kind`
========== ======= ==========================================================================
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.system.files.field_bounds import Bytes, Count, Integer, Ratio, WholeNanoseconds
from presim.trace.signatures import Signature

_Number = TypeVar("_Number", int, NDArray[np.int64])

COLUMNS: dict[str, type] = {
    "kind": np.uint8,
    "phase": np.uint8,
    "stream": np.uint16,
    "signature": np.int32,
    "scope": np.int32,
    "operator": np.int32,
    "host_ns": np.int64,
    "object": np.int64,
    "value": np.int64,
    "site": np.int32,
}


FAILED = ("raised", "exited", "out_of_memory", "killed")  # `Manifest.exit` of a script that failed
STOPPED_WITH_ANOTHER = "stopped, because another rank failed"  # `Manifest.error` of the ranks beside one that failed
COMPILING = "torch.compile"  # scope of device work by a compiler
BUCKETS = "gradient_buckets"  # scope in which DDP and ZeRO allocate what they reduce gradients in


class Kind(enum.IntEnum):
    """Kind of an entry; each member documents ``object`` and ``value``."""

    # value of the next four: 1: replayed by the launch of a CUDA graph in an earlier entry; 0: a call of its own.
    WORK = 0  # device work on `stream`
    COLLECTIVE = 1  # device work that waits for the other ranks; object: serial of the launch group
    EVENT_RECORD = 2  # object: serial of this recording
    STREAM_WAIT = 3  # `stream` waits for the recording `object`
    EVENT_SYNC = 4  # the host waits for the recording `object`
    STREAM_SYNC = 5  # the host waits for all earlier work on `stream`
    DEVICE_SYNC = 6  # the host waits for all streams
    ALLOC = 7  # the allocator hands out a block; object: address, value: bytes
    FREE = 8  # a block comes back; object: address, value: bytes
    SEGMENT_ALLOC = 9  # the allocator takes memory from the device; object: address, value: bytes
    SEGMENT_FREE = 10  # and gives it back
    RETAG = 11  # the block at address `object` belongs to `Category(value)` from here on
    STEP = 12  # a step has ended; object: its number, from 0
    HOST_WAIT = 13  # the host slept; value: wall-clock ns minus CPU time
    # The next two concern a process beside the host that prepares data; object: `fetch_request`.
    FETCH = 14  # the host asks for a batch; value: ns that the worker takes; stream: 0: CPU time, 1: it sleeps
    FETCH_WAIT = 15  # the host waits for the batch
    HOST_CALL = 16  # the driver or the kernel works on host memory; object: `HostCall`, value: bytes


class HostCall(enum.IntEnum):
    """Work on host memory that the emulated libraries skip, so that its time is missing in traces."""

    LOCK = 0  # cudaHostAlloc, cudaHostRegister
    UNLOCK = 1  # cudaFreeHost, cudaHostUnregister
    FIRST_TOUCH = 2  # a copy writes pages that the program never used


_REQUEST_BITS, _WORKER_BITS = 24, 16


def fetch_request(loader: int, worker: int, number: int) -> int:
    """`object` of a FETCH: the number of the request to a worker of a data loader; loaders are numbered, too."""
    return ((loader << _WORKER_BITS) + worker << _REQUEST_BITS) + number


def fetch_worker(request: _Number) -> _Number:
    """What requests to one worker have in common."""
    return request >> _REQUEST_BITS


def fetch_loader(request: _Number) -> _Number:
    """What requests to one loader have in common: its number."""
    return request >> (_REQUEST_BITS + _WORKER_BITS)


def workers_per_loader(requests: NDArray[np.int64]) -> int:
    """Number of workers of the loader that has most; other loaders exist before or after it, or beside it."""
    first_requests = np.unique(fetch_worker(requests), return_index=True)[1]
    return int(np.unique(fetch_loader(requests[first_requests]), return_counts=True)[1].max())


def fetch_parts(request: int) -> tuple[int, int, int]:
    """Loader, worker and number of a request."""
    worker = fetch_worker(request)
    return fetch_loader(request), worker & ((1 << _WORKER_BITS) - 1), request & ((1 << _REQUEST_BITS) - 1)


WAITS = (Kind.EVENT_SYNC, Kind.STREAM_SYNC, Kind.DEVICE_SYNC)  # of the host for the device


class Phase(enum.IntEnum):
    """Part of a step."""

    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    RECOMPUTE = 3  # forward again, inside backward (activation checkpointing)
    OPTIMIZER = 4


class Category(enum.IntEnum):
    """What a block of memory holds (after TorchSim, appendix D)."""

    OTHER = 0
    PARAMETER = 1
    GRADIENT = 2
    OPTIMIZER_STATE = 3
    ACTIVATION = 4
    TEMPORARY = 5
    INPUT = 6
    BUFFER = 7
    COMMUNICATION = 8


class Group(msgspec.Struct, frozen=True):
    """A process group (one communicator) with its members in rank order."""

    name: str  # as the framework calls it, e.g. "dp", or "group 3"
    ranks: tuple[Count, ...]  # global ranks; empty where unknown
    size: Count  # len(ranks) where they are known
    ordinal: Count = 0  # number of groups of the same ranks that were created before it
    is_within_process: bool = False  # its members are GPUs of one process, as in `torch.nn.DataParallel`


class GpuUse(msgspec.Struct, frozen=True):
    """What a process and others held on a GPU of their node at most, with a context each."""

    gpu: Count  # its number in the node
    own_bytes: Bytes
    all_bytes: Bytes  # of all processes together
    processes: Count  # that held them


class ReadBack(msgspec.Struct, frozen=True):
    """A line where the script read device values, and the policy that supplied them."""

    line: str  # ``file.py:12``
    what: str  # item, copy to host, nonzero, …
    answer: str  # computed, or the policy's name (`presim.capture.device_values.policies.DeviceValueOrigin`)
    times: Count
    may_decide: bool = False  # it differs between real ranks, and what the program does may depend on it


class ClusterTables(msgspec.Struct, frozen=True):
    """Tables of the cluster file, as in `presim.hardware.Cluster`."""

    nccl: dict[str, str] = {}
    collectives: dict[str, Any] = {}
    network: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []  # `presim.hardware.cluster.NodeGroup` as plain values


class Measured(msgspec.Struct, frozen=True):
    """Times that a profiler measured, and the hardware (catalogue ids)."""

    durations_ns: tuple[WholeNanoseconds, ...]  # by index into the trace's signatures
    gpu: str
    node: str
    fabric: str
    nodes: Count
    gpus_per_node: Count
    source: str  # the file, and the step in it
    step_ns: WholeNanoseconds = 0  # how long the step took there; 0: not known

    @property
    def world_size(self) -> int:
        """Number of GPUs it was measured on."""
        return self.nodes * self.gpus_per_node


class StepPhase(msgspec.Struct, frozen=True):
    """A part of one step: an inner loop, or what lies outside of inner loops up to an optimizer step."""

    step: Count  # index of the step
    end: Count  # number of entries up to its end
    kind: str  # loop; update: it ends with an optimizer step; call: of a model, without one
    line: str  # ``train.py:12``: of the loop, or of the optimizer step or the first call
    runs: Count = 1  # iterations of the loop


class StepFacts(msgspec.Struct, frozen=True):
    """What a step of the script is."""

    loop: str = ""  # ``train.py:12``: the loop whose iterations are steps; empty: each update is a step
    iterations: Count = 1  # of that loop in most steps: more than one where only every n-th updates the parameters
    updates: Count = 1  # by optimizers in most steps; 0: by other code, or none
    trains: bool = True  # the script has backward passes or optimizer steps
    is_update_missing: bool = False  # the capture ended before an optimizer's first update: steps may be longer
    launches: Count = 0  # of a step that only the repetition of its launches shows: no loop calls a model; else 0
    inputs: tuple[tuple[Count, Count], ...] = ()  # tokens and samples of each step
    sample: str = ""  # how samples were counted, as a clause
    begin: Count = 0  # number of entries before the loop: a probe or a warm-up, which belongs to no step
    phases: tuple[StepPhase, ...] = ()  # of all steps, in order; empty if each step is a single phase
    other_loops: tuple[tuple[str, Count], ...] = ()  # that train before or after this one, and their steps


# Key of `Manifest.model`: tokens of this rank's experts in millionths of an even share, whose FLOPs count for MFU.
EXPERT_LOAD = "expert_load_ppm"


class Manifest(msgspec.Struct, frozen=True):
    """What a trace needs to be understood without the machine that made it."""

    world_size: Count
    rank: Count
    gpu: str  # catalogue id of the emulated GPU
    gpus_per_node: Count
    script: str
    groups: tuple[Group, ...] = ()
    versions: dict[str, str] = {}
    stream_priorities: dict[Integer, Integer] = {}  # stream index -> CUDA priority (lower is more urgent)
    stream_devices: dict[Integer, Count] = {}  # stream index -> GPU of the process, where not its first
    unmodelled_calls: dict[
        str, Count
    ] = {}  # library functions that were called and that the emulation does not implement
    notes: tuple[str, ...] = ()  # what a reader of the result should know, as sentences
    exit: str = "ok"  # ok, stopped (after --steps), raised, out_of_memory, killed
    error: str = ""  # the error message if the script raised
    deadlock: str = ""  # how ranks waited for each other in the capture, if they did until presim let them go on
    memory_capacity_bytes: Bytes = 0  # memory available to the program
    device_total_bytes: Bytes = 0  # device memory that the driver reports
    context_bytes: Bytes = 0  # held by the driver's context
    gpus: tuple[GpuUse, ...] = ()  # if it used several GPUs of its node, or shared one; its own GPU first
    has_process_group: bool = True  # the process joined one of torch.distributed
    devices: Count = 1  # GPUs of the job, if one process uses them all (`torch.nn.DataParallel`, device maps)
    batch: dict[str, Integer] = {}  # tokens, samples of one rank's step, where known
    step: StepFacts = StepFacts()
    # parameters (of the whole model) and parameters_local, where known; EXPERT_LOAD, where composed for uneven routing
    model: dict[str, Integer] = {}
    nccl: dict[str, str] = {}  # NCCL's environment variables as the script had them
    reference_host: bool = False  # host_ns is the reference host's (hardware/host.py), else CPU time where captured
    neighbours: Ratio = 0.0  # share of the machine's CPUs that other processes used during the capture
    # of older captures: CPU time of a fixed piece of Python where captured; 0: not taken
    host_probe_ns: WholeNanoseconds = 0
    read_backs: tuple[ReadBack, ...] = ()
    misuse: tuple[str, ...] = ()  # CUDA errors, such as races, as sentences with the line of the script
    policies: dict[str, str] = {}  # of `presim run --values`, as chosen
    allocator: dict[str, Integer] = {}  # peak_allocated_bytes, peak_reserved_bytes as PyTorch itself counted them
    node: str = ""  # id of the emulated node type, catalogued or the user's own; empty: not said
    fabric: str = ""  # likewise
    cluster_tables: ClusterTables = ClusterTables()
    origin: str = "captured"  # or imported; or composed: host times are of a table, and no machine disturbed them
    measured: Measured | None = None  # of an imported profile: its work is priced by this (presim.cost.profiled)


@dataclasses.dataclass(frozen=True)
class Trace:
    """The entries of one rank, and the tables that they index."""

    manifest: Manifest
    signatures: tuple[Signature, ...]
    scopes: tuple[str, ...]
    operators: tuple[str, ...]
    columns: dict[str, NDArray[np.generic]]  # exactly COLUMNS, all of one length
    sites: tuple[str, ...] = ()  # ``train.py:12``

    def __post_init__(self) -> None:
        lengths = {len(column) for column in self.columns.values()}
        if set(self.columns) != set(COLUMNS) or len(lengths) != 1:
            raise ValueError(f"a trace has the columns {list(COLUMNS)}, all of one length; got {sorted(self.columns)}")

    def __len__(self) -> int:
        return len(self.columns["kind"])

    def column(self, name: str) -> NDArray[np.generic]:
        """One column by name; see the module's table."""
        return self.columns[name]

    def mask(self, *kinds: Kind) -> NDArray[np.bool_]:
        """Mask of the entries of these kinds."""
        table = np.zeros(256, np.bool_)  # four times as fast as np.isin
        table[list(map(int, kinds))] = True
        is_of_kind: NDArray[np.bool_] = table[self.columns["kind"]]
        return is_of_kind

    def steps(self) -> list[slice]:
        """The entries of each step, in order: each ends with its `Kind.STEP` entry.

        Entries after the last step belong to none. The list is empty if the trace has no steps.
        """
        step_ends = np.flatnonzero(self.columns["kind"] == Kind.STEP) + 1
        step_starts = np.concatenate([[0], step_ends[:-1]]) if len(step_ends) else step_ends
        return [slice(int(start), int(end)) for start, end in zip(step_starts, step_ends)]
