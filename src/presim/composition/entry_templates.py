"""Templates: trace entries of a block or framework step, created once and reused for all equal ones."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from presim.composition.host_gaps import HostTimes
from presim.errors import InputError
from presim.trace.schema import Category, Kind, Phase
from presim.trace.signatures import Collective, Signature

STREAMS = (
    "compute",
    "collective",
    "all_gather_copy_in",
    "all_gather",
    "reduce_scatter",
    "before",  # messages with the previous pipeline rank
    "after",
    "pipeline",  # exchanges in the pipeline group
    "data",  # DDP and ZeRO-1
    "all_reduce",  # between replicas of FSDP2 (HSDP)
    "to_host",  # what is offloaded
    "from_host",
)
TO_HOST, FROM_HOST = STREAMS.index("to_host"), STREAMS.index("from_host")
PRIORITIES = {2: -1, 3: -1, 4: -1}  # FSDP2's streams (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py)
COLUMNS = {
    "kind": np.uint8,
    "phase": np.uint8,
    "stream": np.uint16,
    "signature": np.int32,
    "scope": np.int32,
    "operator": np.int32,
    "host_ns": np.int64,
    "slot": np.int32,
    "value": np.int64,
}
NO_SLOT = -1
Ints: TypeAlias = NDArray[np.int64]


class Tables:
    """Tables of signatures and operators that template entries refer to."""

    def __init__(self) -> None:
        self.signatures: dict[Signature, int] = {}
        self.operators: dict[str, int] = {}

    def signature_index(self, signature: Signature) -> int:
        """Its index."""
        return self.signatures.setdefault(signature, len(self.signatures))

    def operator_index(self, name: str) -> int:
        """Index of an operator name; -1 for an empty name."""
        return self.operators.setdefault(name, len(self.operators)) if name else -1


@dataclasses.dataclass(frozen=True, eq=False)
class Template:
    """Entries in columns. Memory blocks and events are numbered slots; each use of the template names its slots."""

    columns: dict[str, NDArray[Any]]
    slots: tuple[str, ...]
    scopes: tuple[str, ...]  # starts with "." if relative to a block

    def __len__(self) -> int:
        return len(self.columns["kind"])

    @functools.cached_property
    def values(self) -> Ints:
        """For each slot, the index of the block's value; -1 if the slot is not a value."""
        return np.array([int(slot) if slot.isdecimal() else -1 for slot in self.slots], np.int64)


class Rows:
    """Builds a template entry by entry; memory blocks and events are referred to by name."""

    def __init__(self, tables: Tables, hosts: HostTimes, phase: Phase) -> None:
        self._tables, self._hosts, self.phase = tables, hosts, phase
        self._rows: list[tuple[int, ...]] = []
        self._slots: dict[str, int] = {}
        self._scopes: dict[str, int] = {}

    def work(self, operator: str, signature: Signature, *, stream: int = 0, scope: str = "", host_ns: int = -1) -> None:
        """Device work."""
        kind = Kind.COLLECTIVE if isinstance(signature, Collective) else Kind.WORK
        name = signature.kind if isinstance(signature, Collective) else operator
        host = self._hosts.of(self.phase, kind, name) if host_ns < 0 else host_ns
        self._add(kind, stream, host, signature=self._tables.signature_index(signature), operator=operator, scope=scope)

    def alloc(
        self, name: str, size: int, category: Category, *, operator: str = "", scope: str = "", stream: int = 0
    ) -> None:
        """Allocate a block from a stream's pool, followed by an entry with its category, as in captures."""
        slot = self._slot(name)
        self._add(Kind.ALLOC, stream, 0, slot=slot, value=size, operator=operator, scope=scope)
        if category is not Category.OTHER:
            self._add(Kind.RETAG, 0, 0, slot=slot, value=int(category), operator=operator, scope=scope)

    def free(self, name: str, size: int, *, scope: str = "") -> None:
        """Free a memory block."""
        self._add(Kind.FREE, 0, 0, slot=self._slot(name), value=size, scope=scope)

    def record(self, name: str, stream: int) -> None:
        """Record an event."""
        self._add(Kind.EVENT_RECORD, stream, self._hosts.of(self.phase, Kind.EVENT_RECORD, ""), slot=self._slot(name))

    def wait(self, name: str, stream: int) -> None:
        """Make a stream wait for an event."""
        self._add(Kind.STREAM_WAIT, stream, self._hosts.of(self.phase, Kind.STREAM_WAIT, ""), slot=self._slot(name))

    def event_sync(self, name: str) -> None:
        """The host waits for an event."""
        self._add(Kind.EVENT_SYNC, 0, 0, slot=self._slot(name))

    def stream_sync(self, stream: int = 0) -> None:
        """Make the host wait for a stream."""
        self._add(Kind.STREAM_SYNC, stream, 0)

    def step(self) -> None:
        """Mark the end of the optimizer's step."""
        self._add(Kind.STEP, 0, self._hosts.of(self.phase, Kind.STEP, ""))

    def __len__(self) -> int:
        return len(self._rows)

    def template(self) -> Template:
        """The finished template.

        Raises:
            InputError: a tensor is too large for any memory.
        """
        try:
            rows = np.array(self._rows, np.int64).reshape(-1, len(COLUMNS))
        except OverflowError as error:
            raise InputError("a tensor of the step takes 2^63 bytes or more; lower sequence or micro_batch") from error
        columns = {name: rows[:, index].astype(dtype) for index, (name, dtype) in enumerate(COLUMNS.items())}
        return Template(columns, tuple(self._slots), tuple(self._scopes))

    def _slot(self, name: str) -> int:
        return self._slots.setdefault(name, len(self._slots))

    def _add(
        self,
        kind: Kind,
        stream: int,
        host_ns: int,
        *,
        signature: int = -1,
        scope: str = "",
        operator: str = "",
        slot: int = NO_SLOT,
        value: int = 0,
    ) -> None:
        scope_index = self._scopes.setdefault(scope, len(self._scopes)) if scope else -1
        index = self._tables.operator_index(operator)
        self._rows.append((int(kind), int(self.phase), stream, signature, scope_index, index, host_ns, slot, value))
