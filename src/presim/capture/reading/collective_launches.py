"""Collectives in the log: their process groups, and the calls that form one launch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.capture.reading.library_calls import dtype_of
from presim.capture.reading.log import Descriptor, Log, parse
from presim.capture.reading.log_tail import LogTail
from presim.trace.collective import Collective, Routed, Splits
from presim.trace.schema import Group, Kind

_DEFAULT_GROUP = "default_pg"  # PyTorch's description of it
_AS_SENDS = {"all_to_all": "all_to_all", "all_to_allv": "all_to_all", "gather": "gather", "scatter": "scatter"}


@dataclasses.dataclass
class _Call:
    """One NCCL call as recorded by the shim."""

    kind: str
    bytes: int
    dtype: str
    communicator: str
    peer: int
    per_rank: bool  # whether bytes are those of one rank


class Communication:
    """Process groups in the order of first use, and the signatures of collectives."""

    def __init__(self, log: Log | LogTail) -> None:
        self.log = log
        self._groups: dict[str, int] = {}  # group key -> index
        self._group_list: list[Group] = []
        self._keys: dict[str, str] = {}  # communicator -> key of the PyTorch group that it was used for
        self._communicators: dict[str, Descriptor] = {}  # communicator serial -> note from its creation
        self._members: dict[str, tuple[int, ...]] = {}
        self._calls: dict[int, _Call] = {}
        self._merged: dict[int, Collective] = {}  # negative work id -> signature of a coalesced launch
        self._searched_descriptors = 0
        self._mesh_dimension = ""
        self._first: dict[int, int] = {}  # negative work id -> work id of its first call

    def groups(self) -> tuple[Group, ...]:
        """All groups found so far.

        PyTorch's default group has the name of the mesh's dimension that splits the model over all ranks, if any does.
        """
        for descriptor in self.log.descriptors[self._searched_descriptors :]:
            if descriptor.family == "mesh":
                self._mesh_dimension = self._mesh_dimension or descriptor.fields["dimension"]
        self._searched_descriptors = len(self.log.descriptors)
        if not self._mesh_dimension:
            return tuple(self._group_list)
        name = f"mesh_{self._mesh_dimension}"
        return tuple(
            msgspec.structs.replace(group, name=name) if group.name == _DEFAULT_GROUP else group
            for group in self._group_list
        )

    def names(self) -> tuple[str, ...]:
        """The process's own key of each group; other ranks use the same key if PyTorch created the group."""
        return tuple(self._groups)

    def signature(self, work: int, op: int) -> Collective:
        """The signature of a collective record."""
        if work < -1:
            return self._merged[work]
        call = self._call(work)
        group = self._group(call, op)
        if exchange := self._site(work).get("exchange"):
            return _exchange_collective(exchange, group)
        return Collective(call.kind, self._bytes(call, group), call.dtype, group, call.peer)

    def _bytes(self, call: _Call, group: int) -> int:
        """Total bytes of a call.

        A communicator created by a split does not know its size and logs the bytes of one rank; the PyTorch group has
        the size.
        """
        return call.bytes * max(1, self._group_list[group].size) if call.per_rank else call.bytes

    def merge_coalesced(self, records: NDArray[np.void]) -> NDArray[np.void]:
        """Merge the calls of a communicator between ncclGroupStart and ncclGroupEnd, which are one kernel.

        Sends and receives become the collective that PyTorch recorded for them (such as an all-to-all, in which a rank
        may send nothing to most peers). Without a record, sends and receives with all ranks or more than two are an
        all-to-all; others are messages, one for each peer. Broadcasts from different roots are an all-gather of
        separate tensors.
        """
        launches: dict[tuple[int, int, str], list[int]] = {}
        for index in np.flatnonzero(records["kind"] == Kind.COLLECTIVE):
            communicator = self._call(int(records["work"][index])).communicator
            key = (int(records["object"][index]), int(records["stream"][index]), communicator)
            launches.setdefault(key, []).append(int(index))
        keep = np.ones(len(records), bool)
        merged = records
        messages = (self._by_message(records, launch) for launch in launches.values())
        for indices in itertools.chain.from_iterable(messages):
            if len(indices) == 1 and not self._collective_of_record(records[indices[0]]):
                continue
            if merged is records:
                merged = records.copy()
            work = -2 - len(self._merged)
            self._merged[work] = self._combine(records[indices])
            self._first[work] = int(records["work"][indices[0]])
            merged["work"][indices[-1]] = work
            keep[indices[:-1]] = False
        return merged if keep.all() else _drop(merged, keep)

    def _by_message(self, records: NDArray[np.void], launch: list[int]) -> list[list[int]]:
        """The calls of a launch that are merged: all of them, or those with one peer."""
        calls = {index: self._call(int(records["work"][index])) for index in launch}
        kinds, peers = ({getattr(call, name) for call in calls.values()} for name in ("kind", "peer"))
        if not kinds <= {"send", "recv"} or len(peers) < 2 or self._collective_of_record(records[launch[0]]):
            return [launch]
        if self._is_all_to_all(list(calls.values()), int(records[launch[0]]["op"])):
            return [launch]
        calls_by_peer: dict[int, list[int]] = {}
        for index, call in calls.items():
            calls_by_peer.setdefault(call.peer, []).append(index)
        return list(calls_by_peer.values())

    def _is_all_to_all(self, calls: Sequence[_Call], op: int) -> bool:
        """Whether a launch of sends and receives has too many peers for messages; with two ranks, one is this rank."""
        peers = {call.peer for call in calls}
        is_everyone = len(peers) == self._group_list[self._group(calls[0], op)].size
        return {call.kind for call in calls} == {"send", "recv"} and (len(peers) > 2 or is_everyone)

    def _combine(self, records: NDArray[np.void]) -> Collective:
        calls = [self._call(int(record["work"])) for record in records]
        group = self._group(calls[0], int(records[0]["op"]))
        kinds = {call.kind for call in calls}
        total = sum(self._bytes(call, group) for call in calls)
        if kinds == {"broadcast"} and len({call.peer for call in calls}) == len(calls) > 1:
            return Collective("all_gather", total, calls[0].dtype, group)
        if kinds <= {"send", "recv"} and (composed := self._collective_of_record(records[0])):
            return self._as_collective(composed, calls, group)
        if not kinds <= {"send", "recv"}:
            return Collective(calls[0].kind, total, calls[0].dtype, group, calls[0].peer, fused=len(calls))
        if self._is_all_to_all(calls, int(records[0]["op"])):
            return self._as_collective("all_to_all", calls, group)
        sent = sum(call.bytes for call in calls if call.kind == "send")
        kind = "send_recv" if len(kinds) == 2 else calls[0].kind
        return Collective(kind, max(sent, total - sent), calls[0].dtype, group, calls[0].peer, fused=len(calls))

    def _collective_of_record(self, record: np.void) -> str:
        """The collective that PyTorch recorded for these sends and receives, if any."""
        described = self._torch_group(int(record["op"]))
        call = self._call(int(record["work"]))
        return (
            _AS_SENDS.get(described.fields.get("call", ""), "") if described and call.kind in ("send", "recv") else ""
        )

    def _as_collective(self, kind: str, calls: Sequence[_Call], group: int) -> Collective:
        """The collective of which these sends and receives are one rank's part."""
        ranks = max(self._group_list[group].size, 1 + max(call.peer for call in calls))
        parts = {"send": [0] * ranks, "recv": [0] * ranks}
        for call in calls:
            parts[call.kind][call.peer] += call.bytes
        own_rank = self._own_rank(calls[0].communicator)
        if kind != "all_to_all":  # with equal parts
            is_root = calls[0].kind == ("recv" if kind == "gather" else "send")
            return Collective(
                kind, calls[0].bytes * ranks, calls[0].dtype, group, own_rank if is_root else calls[0].peer
            )
        even = len({*parts["send"], *parts["recv"]}) == 1
        has_splits = 0 <= own_rank < ranks and not even
        splits = Splits(own_rank, tuple(parts["send"]), tuple(parts["recv"])) if has_splits else None
        return Collective(kind, sum(parts["send"]), calls[0].dtype, group, splits=splits)

    def line(self, work: int) -> str:
        """The line that calls a collective, as ``train.py:12``; empty if unknown."""
        return self._site(work).get("at", "")

    def _site(self, work: int) -> Mapping[str, str]:
        """The call site recorded by the Python side."""
        site = self.log.descriptors[self._first.get(work, work)].number("site", -1)
        return self.log.descriptors[site].fields if site >= 0 else {}

    def _call(self, work: int) -> _Call:
        if work not in self._calls:
            descriptor = self.log.descriptors[work]
            self._calls[work] = _Call(
                kind=descriptor.fields.get("kind", "?"),
                bytes=descriptor.number("bytes"),
                dtype=dtype_of(descriptor.fields.get("dtype", "u8")),
                communicator=descriptor.fields.get("comm", "0"),
                peer=descriptor.number("peer", -1),
                per_rank=descriptor.fields.get("per_rank") == "1",
            )
        return self._calls[work]

    def _group(self, call: _Call, op: int) -> int:
        """Index of a call's group, by PyTorch's group, else by its communicator.

        PyTorch records the group at each call. A call without a record belongs to the group for which its communicator
        was last used; that includes calls whose operator has not ended yet while the script runs.
        """
        described = self._torch_group(op)
        if described is None and call.communicator in self._keys:
            return self._groups[self._keys[call.communicator]]
        members = self._members_of(call.communicator)
        pair = described is not None and len(members) == 2 != described.number("size")
        key = f"group {described.fields.get('name')}" if described else f"communicator {call.communicator}"
        if pair:  # PyTorch uses two-rank communicators for messages that are not batched
            key += f" {members}"
        if key not in self._groups:
            size = self._creation_note(call.communicator).number("size", 0)
            group = _describe(described) if described else self._group_without_torch(key, call.communicator, size)
            self._groups[key] = len(self._group_list)
            self._group_list.append(Group(group.name, members, 2, group.ordinal) if pair else group)
        if described is not None:
            self._keys[call.communicator] = key
        return self._groups[key]

    def _group_without_torch(self, key: str, communicator: str, size: int) -> Group:
        """The group of a communicator that the program created without PyTorch."""
        members = self._members_of(communicator)
        earlier = range(int(communicator)) if members and communicator.isdigit() else ()
        ordinal = sum(self._members.get(str(serial)) == members for serial in earlier)
        return Group(key, members, size or len(members), ordinal, self._is_within_process(communicator, size))

    def _is_within_process(self, communicator: str, size: int) -> bool:
        """Whether this process made the communicators of all ranks, as `ncclCommInitAll` does."""
        identity = self._creation_note(communicator).fields.get("unique_id")
        notes = (note for note in self._communicators.values() if note.fields.get("unique_id") == identity)
        return identity is not None and len({note.number("rank") for note in notes}) == size > 1

    def _creation_note(self, communicator: str) -> Descriptor:
        if communicator not in self._communicators:
            facts = [parse(note) for note in self.log.notes if note.startswith("communicator ")]
            self._communicators = {fact.fields.get("serial", ""): fact for fact in facts}
        return self._communicators.get(communicator, Descriptor("communicator", {}))

    def _own_rank(self, communicator: str) -> int:
        """This process's rank in a communicator, or -1."""
        return self._creation_note(communicator).number("rank", -1)

    def _members_of(self, communicator: str) -> tuple[int, ...]:
        """Global ranks of a communicator as known to the shim at its first call. The log of a running script grows."""
        if communicator not in self._members:
            self._members |= {communicator: ()} | _communicator_members(self.log.notes)
        return self._members[communicator]

    def _torch_group(self, op: int) -> Descriptor | None:
        """The hook's record of a call's group; its operator's only scalar refers to it."""
        arguments = self.log.descriptors[op].fields.get("args", "") if op >= 0 else ""
        if not arguments.isdecimal() or int(arguments) >= len(self.log.descriptors):
            return None
        descriptor = self.log.descriptors[int(arguments)]
        return descriptor if descriptor.family == "group" else None


def _exchange_collective(exchange: str, group: int) -> Collective:
    """The collective that a placeholder collective represents.

    Format: ``kind;library;tokens;bytes;chosen;experts;sms;window;spread;dtype``.
    """
    kind, library, *numbers, spread, dtype = exchange.split(";")
    tokens, size, experts_per_token, experts, sms, window = map(int, numbers)
    ranks_per_token = tuple(float(count) for count in spread.split(",") if count)
    routed = Routed(library, tokens, size, experts_per_token, experts, sms, ranks_per_token, window)
    return Collective(kind, routed.tokens * routed.token_bytes, dtype, group, routed=routed)


def _describe(descriptor: Descriptor) -> Group:
    """A group named by its description in PyTorch (not unique), else by its PyTorch name."""
    ranks = parse_ranks(descriptor.fields.get("ranks", ""))
    size = descriptor.number("size") or len(ranks)
    purpose = descriptor.fields.get("desc", "")
    name = purpose if purpose not in ("undefined", "") else f"group {descriptor.fields.get('name', '?')}"
    return Group(name, ranks or tuple(range(size)), size, descriptor.number("ordinal"))


def parse_ranks(text: str) -> tuple[int, ...]:
    """Parse ``0,3,5`` or ``first:end:stride``."""
    if ":" in text:
        start, end, stride = (int(part) for part in text.split(":"))
        return tuple(range(start, end, stride))
    return tuple(int(part) for part in text.split(",")) if text else ()


def _communicator_members(notes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    facts = [parse(note) for note in notes if note.startswith("members ")]
    return {fact.fields.get("serial", ""): parse_ranks(fact.fields.get("ranks", "")) for fact in facts}


def _drop(records: NDArray[np.void], keep: NDArray[np.bool_]) -> NDArray[np.void]:
    """Remove records. Their CPU time falls to the next remaining one, because times are absolute."""
    return records[keep]
