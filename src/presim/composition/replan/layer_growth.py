"""What grows with the layers without repeating: work on all parameters together, and buffers of them.

Two captures of different size say by how much.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.layer_names import Names
from presim.errors import InputError
from presim.trace.schema import Kind, Phase, Trace
from presim.trace.signatures import MemoryBound, Signature

Ints = NDArray[np.int64]
Growth: TypeAlias = Mapping[int, Mapping[str, float]]  # call -> quantity -> factor
BYTES = "value"  # of an allocation
_OF_THE_HOST = (Kind.HOST_CALL, Kind.HOST_WAIT)  # pages that are touched first, and sleep
_UNEQUAL_SHARE = 0.01  # of memory before the steps, beside large blocks that the allocator did not split
_UNSPLIT_BYTES = 1 << 20  # PyTorch leaves a large block whole if no more than this remains


@dataclasses.dataclass(frozen=True, eq=False)
class Calls:
    """A trace's calls, with the names that are compared."""

    trace: Trace
    entries: Ints
    scopes: Names
    operators: Names

    def keys(self, words: dict[str, int]) -> Ints:
        """What each call is, without quantities and layers [calls, columns]; ``words``: numbers of names so far."""
        columns = [self.trace.columns[name][self.entries].astype(np.int64) for name in ("kind", "phase", "stream")]
        for name, table in (("scope", self.scopes), ("operator", self.operators)):
            numbers = [words.setdefault(template, len(words)) for template in table.templates]
            by_rest = np.array([*numbers, -1], np.int64)
            columns.append(by_rest[table.rests[self.trace.columns[name][self.entries].astype(np.int64)]])
        return np.stack(columns, axis=1)

    def runs(self, keys: Ints) -> list[Ints]:
        """By step: first calls of runs of device work that differ in nothing but quantities, and the step's end.

        Other calls are runs by themselves. What precedes the steps creates the model, and is left out.
        """
        is_same = (keys[1:] == keys[:-1]).all(axis=1) & (keys[1:, 0] == Kind.WORK)
        starts = np.concatenate([[True], ~is_same]) & ~np.isin(keys[:, 0], _OF_THE_HOST)
        runs = np.flatnonzero(starts)
        bounds = [(max(step.start, self.trace.manifest.step.begin), step.stop) for step in self.trace.steps()]
        call_bounds = [np.searchsorted(self.entries, bound) for bound in bounds]
        return [np.append(runs[(runs >= begin) & (runs < end)], end) for begin, end in call_bounds]

    def signature(self, call: int) -> Signature | None:
        """The work of a call."""
        number = int(self.trace.columns["signature"][self.entries[call]])
        return self.trace.signatures[number] if number >= 0 else None

    def quantities(self, begin: int, end: int) -> dict[str, int]:
        """Sums over calls of what may grow."""
        totals: dict[str, int] = {}
        for call in range(begin, end):
            signature = self.signature(call)
            if signature is None:
                is_block = self.trace.columns["kind"][self.entries[call]] == Kind.ALLOC
                numbers = {BYTES: int(self.trace.columns["value"][self.entries[call]])} if is_block else {}
            else:
                fields = msgspec.structs.asdict(signature)
                numbers = {name: value for name, value in fields.items() if type(value) is int}
            for name, value in numbers.items():
                totals[name] = totals.get(name, 0) + value
        return totals


def growth_between(extended: Calls, larger: Calls, is_outside: NDArray[np.bool_], further: float) -> Growth:
    """For calls of the larger capture, by what factor quantities outside of layers grow.

    ``extended``: the smaller capture, with as many layers as the larger one; ``is_outside``: which of its calls belong
    to no layer. ``further``: layers to be added, relative to those that the larger capture has more.

    Raises:
        InputError: the extended capture does something else than the larger one, so no law holds.
    """
    words: dict[str, int] = {}
    keys, larger_keys = extended.keys(words), larger.keys(words)
    runs_by_step, larger_runs_by_step = extended.runs(keys), larger.runs(larger_keys)
    if len(runs_by_step) != len(larger_runs_by_step):
        raise InputError(
            f"one capture has {len(runs_by_step)} steps and the larger one {len(larger_runs_by_step)}; capture both "
            "with the same --steps"
        )
    growth: dict[int, Mapping[str, float]] = {}
    for runs, larger_runs in zip(runs_by_step, larger_runs_by_step):
        is_last = runs is runs_by_step[-1]
        length = min(len(runs), len(larger_runs)) - 1
        differs = (keys[runs[:length]] != larger_keys[larger_runs[:length]]).any(axis=1)
        if differs.any() or len(runs) != len(larger_runs):
            if is_last:
                first = int(np.flatnonzero(differs)[0]) if differs.any() else length - 1
                raise InputError(_refusal(larger, int(larger_runs[first]), extended, int(runs[first])))
            continue  # it sets something up, as what a compiler tries
        for pair in zip(*(column.tolist() for column in (runs[:-1], runs[1:], larger_runs[:-1], larger_runs[1:]))):
            growth |= _growth_of_run(extended, larger, pair, bool(is_outside[pair[0]]), further, is_last)
    return growth


def growth_of_setup(
    smaller: Calls, is_outside: NDArray[np.bool_], larger: Calls, is_outside_larger: NDArray[np.bool_], further: float
) -> tuple[Growth, int]:
    """For calls of the larger capture before its steps, by what factor blocks of all layers together grow.

    Such blocks are flat buffers of parameters and gradients. Also by how many bytes those that last are larger than in
    the smaller capture. ``is_outside``: which calls belong to no layer; see `growth_between`.
    """
    blocks, larger_blocks = _setup_blocks(smaller, is_outside), _setup_blocks(larger, is_outside_larger)
    if [_operator(smaller, call) for call in blocks] != [_operator(larger, call) for call in larger_blocks]:
        return {}, 0
    growth, grown_bytes, lasting_blocks = {}, 0, _lasting_blocks(larger.trace)
    for block, larger_block in zip(blocks, larger_blocks):
        before = smaller.quantities(block, block + 1)[BYTES]
        after = larger.quantities(larger_block, larger_block + 1)[BYTES]
        if _grows(BYTES, before, after):
            growth[larger_block] = {BYTES: 1 + further * (after - before) / after}
            grown_bytes += after - before if int(larger.entries[larger_block]) in lasting_blocks else 0
    return growth, grown_bytes


def check_setup(extended: Trace, grown_bytes: int, larger: Trace) -> None:
    """Check that blocks made before the steps of the smaller capture, extended and grown, are those of the larger.

    Those count that are live after the last step, as parameters and flat buffers.

    Raises:
        InputError: it is not.
    """
    blocks, larger_blocks = _lasting_blocks(extended), _lasting_blocks(larger)
    extended_bytes, larger_bytes = sum(blocks.values()) + grown_bytes, sum(larger_blocks.values())
    unsplit_bytes = _UNSPLIT_BYTES * sum(value > _UNSPLIT_BYTES for value in larger_blocks.values())
    if abs(extended_bytes - larger_bytes) > _UNEQUAL_SHARE * larger_bytes + unsplit_bytes:
        raise InputError(
            f"before its steps the larger capture makes {larger_bytes / 2**30:.2f} GiB that last, and layers alike "
            f"would make {extended_bytes / 2**30:.2f} GiB; capture the whole model"
        )


def _lasting_blocks(trace: Trace) -> dict[int, int]:
    """Bytes by entry of blocks made before the steps that are live after the last one."""
    end, begin = max((step.stop for step in trace.steps()), default=len(trace)), trace.manifest.step.begin
    kinds, blocks, values = (trace.columns[name][:end] for name in ("kind", "object", "value"))
    entries: dict[int, int] = {}
    for entry in np.flatnonzero((kinds == Kind.ALLOC) | (kinds == Kind.FREE)).tolist():
        entries.pop(int(blocks[entry]), None)
        if kinds[entry] == Kind.ALLOC and entry < begin:
            entries[int(blocks[entry])] = entry
    return {entry: int(values[entry]) for entry in entries.values()}


def _setup_blocks(calls: Calls, is_outside: NDArray[np.bool_]) -> list[int]:
    """Calls before the steps that allocate large blocks."""
    columns, entries = calls.trace.columns, calls.entries
    is_block = (columns["kind"][entries] == Kind.ALLOC) & (columns["value"][entries].astype(np.int64) > _UNSPLIT_BYTES)
    is_early = entries < calls.trace.manifest.step.begin
    return [int(call) for call in np.flatnonzero(is_block & is_early & is_outside)]


def _operator(calls: Calls, call: int) -> str:
    index = int(calls.trace.columns["operator"][calls.entries[call]])
    return calls.trace.operators[index] if index >= 0 else ""


def _growth_of_run(
    extended: Calls, larger: Calls, bounds: tuple[int, ...], is_outside: bool, further: float, is_last: bool
) -> Growth:
    """``bounds``: first call and end of a run in both. See `growth_between`."""
    begin, end, larger_begin, larger_end = bounds
    if _is_equal(extended, begin, end, larger, larger_begin, larger_end):
        return {}
    before, after = extended.quantities(begin, end), larger.quantities(larger_begin, larger_end)
    if before == after:
        return {}
    if not is_outside:
        if is_last and set(before) != {BYTES}:  # the allocator did not split a block here or there
            raise InputError(_refusal(larger, larger_begin, extended, begin))
        return {}
    factors = {
        name: 1 + further * (number - before.get(name, 0)) / number
        for name, number in after.items()
        if _grows(name, before.get(name, 0), number)
    }
    return dict.fromkeys(range(larger_begin, larger_end), factors)


def _grows(name: str, before: int, after: int) -> bool:
    """Whether a quantity grows by more than what the allocator may add to a block."""
    return after - before > (_UNSPLIT_BYTES if name == BYTES and before > _UNSPLIT_BYTES else 0)


def _is_equal(first: Calls, begin: int, end: int, second: Calls, second_begin: int, second_end: int) -> bool:
    if end - begin != second_end - second_begin:
        return False
    for call, other in zip(range(begin, end), range(second_begin, second_end)):
        signature, other_signature = first.signature(call), second.signature(other)
        if signature != other_signature:
            return False
        if signature is None and first.quantities(call, call + 1) != second.quantities(other, other + 1):
            return False
    return True


def _refusal(larger: Calls, larger_call: int, extended: Calls, call: int) -> str:
    return (
        f"the larger capture does not confirm the law of the smaller one: it has {words_of(larger, larger_call)} where "
        f"layers alike would have {words_of(extended, call)}; capture the whole model"
    )


def words_of(calls: Calls, call: int) -> str:
    """A call with its operator, module and entry, for sentences."""
    trace, entry = calls.trace, int(calls.entries[call])
    kind = Kind(int(trace.columns["kind"][entry])).name
    operator, scope = int(trace.columns["operator"][entry]), int(trace.columns["scope"][entry])
    parts = (kind, trace.operators[operator] if operator >= 0 else "", trace.scopes[scope] if scope >= 0 else "")
    return f"{' '.join(part for part in parts if part)} (entry {entry})"


def growth_with_parameters(calls: Calls, is_outside: NDArray[np.bool_], num_layers: int, factor: float) -> Growth:
    """Growth of launches over lists of tensors, of each layer at least one, in proportion to the parameters' bytes.

    One capture does not say more.
    """
    counted = dict.fromkeys(("bytes_read", "bytes_written", "elements", "fused_tensors"), factor)
    phases = calls.trace.columns["phase"][calls.entries]
    is_update = is_outside & np.isin(phases, [Phase.OTHER, Phase.OPTIMIZER])
    growth: dict[int, Mapping[str, float]] = {}
    for call in np.flatnonzero(is_update).tolist():
        signature = calls.signature(call)
        if isinstance(signature, MemoryBound) and signature.fused_tensors >= num_layers:
            growth[call] = counted
    return growth


def with_growth(trace: Trace, entries: Ints, calls: Sequence[int], growth: Growth) -> Trace:
    """The trace in which the calls at ``entries``, copies of captured ``calls``, have grown."""
    signatures: list[Signature] = list(trace.signatures)
    number_by_change: dict[tuple[int, tuple[tuple[str, float], ...]], int] = {}
    columns = {**trace.columns, "signature": trace.columns["signature"].copy(), "value": trace.columns["value"].copy()}
    for entry, call in zip(entries.tolist(), calls):
        factors = growth.get(call)
        if not factors:
            continue
        if BYTES in factors:
            columns["value"][entry] = round(int(columns["value"][entry]) * factors[BYTES])
            continue
        number = int(columns["signature"][entry])
        change = (number, tuple(factors.items()))
        if change not in number_by_change:
            number_by_change[change] = len(signatures)
            signature = signatures[number]
            grown_fields = factors.keys() & set(signature.__struct_fields__)  # a run has copies and kernels
            grown = {name: round(getattr(signature, name) * factors[name]) for name in grown_fields}
            signatures.append(msgspec.structs.replace(signature, **grown))
        columns["signature"][entry] = number_by_change[change]
    return dataclasses.replace(trace, columns=columns, signatures=tuple(signatures))
