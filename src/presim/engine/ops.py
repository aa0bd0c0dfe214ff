"""Converts a trace and its durations to the ops that the loop reads.

Entries that concern neither a stream nor the device (allocations, tags, steps) do not become ops. Their host time is
added to the next op.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.cost.price import PricedTrace
from presim.engine import loop
from presim.engine.batch_fetches import fetch_ns, fetch_targets
from presim.engine.contention import Classes
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Collective, Copy, Signature

Ints = NDArray[np.int64]

_NO_OP = -1
_CODES = {
    Kind.WORK: loop.RUN,
    Kind.COLLECTIVE: loop.MEET,
    Kind.EVENT_RECORD: loop.RECORD,
    Kind.STREAM_WAIT: loop.WAIT,
    Kind.EVENT_SYNC: loop.EVENT_SYNC,
    Kind.STREAM_SYNC: loop.STREAM_SYNC,
    Kind.DEVICE_SYNC: loop.DEVICE_SYNC,
    Kind.FETCH: loop.FETCH,
    Kind.FETCH_WAIT: loop.FETCH_WAIT,
}
_CODE_OF_KIND = np.array([_CODES.get(kind, _NO_OP) for kind in Kind], np.int64)
_COPY_RESOURCE = {"h2d": loop.COPY_H2D, "d2h": loop.COPY_D2H, "peer": loop.COPY_PEER}


@dataclasses.dataclass(frozen=True)
class RankOps:
    """One rank's ops. Columns as in `loop.Program`, but with indices of ops and slots within the rank."""

    trace: Trace
    entries: Ints  # [op] trace entry
    host_cum_ns: Ints  # [entry] host time up to and including it, if the host were never blocked
    streams: Ints  # [slot] stream index
    priority: Ints  # [slot]
    slot_first: Ints
    code: Ints
    host_ns: Ints
    slot: Ints
    following: Ints
    duration: Ints
    resource: Ints
    target: Ints
    joins: Ints
    contends: Ints  # class of contention
    flows: Ints  # class of flows on links


def build_ops(priced: PricedTrace, options: Options, classes: Classes | None = None) -> RankOps:
    """One rank's ops. ``classes``: contention classes of the job; this rank's classes are added."""
    trace = priced.trace
    classes = classes or Classes()
    columns = trace.columns
    all_codes = _CODE_OF_KIND[columns["kind"].astype(np.int64)]
    if trace.manifest.measured is not None:  # kernels that overlapped in a profile overlap again: none is exclusive
        all_codes = np.where(all_codes == loop.RUN, loop.MEET, all_codes)
    entries = np.flatnonzero(all_codes != _NO_OP)
    code = all_codes[entries]
    streams, slot = _slots(columns["stream"][entries].astype(np.int64))
    is_elsewhere = np.isin(streams, [*trace.manifest.stream_devices])[slot]  # on another GPU of the same process
    code[is_elsewhere & (code == loop.RUN)] = loop.MEET  # the first GPU's work does not exclude it
    following, slot_first = _links(code, slot, len(streams))
    duration = np.where(code == loop.FETCH, fetch_ns(trace, options)[entries], priced.durations_ns()[entries])
    if len(duration) and int(duration.min()) < 0:
        raise InputError(f"an entry has a negative duration ({int(duration.min())} ns); correct its price")
    signature = columns["signature"][entries].astype(np.int64)  # -1, the last element of the tables, if there is none
    serial = columns["object"][entries].astype(np.int64)
    resources = np.array([*map(_resource, trace.signatures), loop.COMPUTE], np.int64)
    is_pair = np.array([*map(_is_pair, trace.signatures), False], np.int64)
    joins = _joins(code, following, serial, is_pair[signature])
    host_cum_ns = np.cumsum(host_ns(trace, options))
    return RankOps(
        trace=trace,
        entries=entries,
        host_cum_ns=host_cum_ns,
        streams=streams,
        priority=np.array([trace.manifest.stream_priorities.get(stream, 0) for stream in streams.tolist()], np.int64),
        slot_first=slot_first,
        code=code,
        host_ns=np.diff(host_cum_ns[entries], prepend=0),
        slot=slot,
        following=following,
        duration=duration if trace.manifest.measured else _shared(trace, signature, duration, following, joins),
        resource=resources[signature],
        target=np.where(code >= loop.FETCH, fetch_targets(code, serial), _targets(code, serial)),
        joins=joins,
        contends=np.where(is_elsewhere, 0, classes.of(priced)[signature]),
        flows=classes.flows.of(priced)[signature],
    )


def host_ns(trace: Trace, options: Options) -> Ints:
    """CPU time before each entry on the cluster's hosts, ns."""
    factor = options.host_factor_of(trace.manifest)
    scaled: Ints = np.rint(trace.columns["host_ns"].astype(np.float64) * factor).astype(np.int64)
    slept = np.where(trace.columns["kind"] == Kind.HOST_WAIT, trace.columns["value"], 0)
    result: Ints = slept + scaled + options.calls.of(trace)
    return result


def _slots(stream: Ints) -> tuple[Ints, Ints]:
    """Streams in ascending order, and for each op the index of its stream.

    Uses counting, because sorting took a third of the time of `build_ops`.
    """
    streams = np.flatnonzero(np.bincount(stream)).astype(np.int64)
    slot_by_stream = np.zeros(int(stream.max(initial=-1)) + 1, np.int64)
    slot_by_stream[streams] = np.arange(len(streams))
    return streams, slot_by_stream[stream]


def _links(code: Ints, slot: Ints, slots: int) -> tuple[Ints, Ints]:
    """For each op the next op on its stream, and for each stream its first op."""
    ops = np.flatnonzero(code <= loop.WAIT)
    ordered = ops[np.argsort(slot[ops], kind="stable")]
    same = slot[ordered[1:]] == slot[ordered[:-1]]
    following = np.full(len(code), -1, np.int64)
    following[ordered[:-1][same]] = ordered[1:][same]
    first = np.full(slots, -1, np.int64)
    first[slot[ops[::-1]]] = ops[::-1]
    return following, first


def _targets(code: Ints, serial: Ints) -> Ints:
    """For each wait its recording: the last earlier one with that serial; -1 if there is none.

    As in CUDA, a wait for an event that was not recorded returns at once. Waits for recordings outside the trace are
    treated alike.
    """
    target = np.full(len(code), -1, np.int64)
    records = np.flatnonzero(code == loop.RECORD)
    serials, number = np.unique(serial[records], return_inverse=True)
    if len(serials) == 0:
        return target
    waits = np.flatnonzero((code == loop.WAIT) | (code == loop.EVENT_SYNC))
    serial_numbers = np.minimum(np.searchsorted(serials, serial[waits]), len(serials) - 1)
    keys = number.reshape(-1) * len(code) + records  # by serial, then by position
    order = np.argsort(keys)
    positions = np.searchsorted(keys[order], serial_numbers * len(code) + waits) - 1
    recordings = records[order[np.maximum(positions, 0)]]
    is_found = (positions >= 0) & (serial[recordings] == serial[waits])
    target[waits[is_found]] = recordings[is_found]
    return target


def _joins(code: Ints, following: Ints, serial: Ints, is_pair: Ints) -> Ints:
    """1 for sends and receives that share a launch with the previous op on their stream.

    NCCL runs the sends and receives of one group call concurrently. Run in sequence, they could deadlock. Other
    collectives of a group call have the same order on all ranks and run in sequence.
    """
    candidate = (code == loop.MEET) & (is_pair == 1) & (serial != 0)
    joins = np.zeros(len(code), np.int64)
    before = np.flatnonzero(candidate & (following >= 0))
    after = following[before]
    joins[after] = candidate[after] & (serial[after] == serial[before])
    return joins


def _shared(trace: Trace, signature: Ints, duration: Ints, following: Ints, joins: Ints) -> Ints:
    """Durations with the bandwidth shared among the sends, and among the receives, of one launch.

    Each ends after the sum of the durations up to it.
    """
    result = duration.copy()
    heads = np.flatnonzero((joins == 0) & (following >= 0) & (joins[following] == 1))
    for head in heads.tolist():
        totals: dict[str, int] = {}
        op = head
        while op == head or (op >= 0 and joins[op]):
            direction = getattr(trace.signatures[signature[op]], "kind", "")
            totals[direction] = totals.get(direction, 0) + int(duration[op])
            result[op] = totals[direction]
            op = int(following[op])
    return result


def _resource(signature: Signature) -> int:
    return _COPY_RESOURCE.get(signature.direction, loop.COMPUTE) if isinstance(signature, Copy) else loop.COMPUTE


def _is_pair(signature: Signature) -> bool:
    return isinstance(signature, Collective) and signature.kind in ("send", "recv", "send_recv")
