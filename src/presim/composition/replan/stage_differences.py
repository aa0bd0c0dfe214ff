"""Whether a stage made of another one is the captured stage."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.cycles import program_calls
from presim.composition.replan.object_names import definitions
from presim.composition.replan.stage_ranks import messages_between_stages
from presim.errors import InputError
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Elementwise, Signature, vectorised

Ints = NDArray[np.int64]
_ADVICE = "capture the job with the number of stages that you want"
_OF_THE_HOST = (Kind.HOST_CALL, Kind.HOST_WAIT)


def check_equal(derived: Trace, captured: Trace) -> None:
    """Check that two traces make the same calls in their last step, which refer to the same calls of it.

    Raises:
        InputError: they do not; the first call that differs is named.
    """
    _compare(derived, captured, _last_step_calls(derived), _last_step_calls(captured))


def check_equal_beside_messages(derived: Trace, captured: Trace) -> None:
    """As `check_equal`, but messages between stages may be posted in another order.

    Raises:
        InputError: the traces differ in more.
    """
    entries, message_entries = zip(*(_beside_messages(trace, _last_step_calls(trace)) for trace in (derived, captured)))
    _compare(derived, captured, *entries)
    ours, theirs = (
        Counter(call[:-1] for _, call in _contents(trace, posted))
        for trace, posted in zip((derived, captured), message_entries)
    )
    if ours != theirs:
        difference = next(iter(((ours - theirs) | (theirs - ours)).items()))
        raise InputError(
            f"a stage's messages to other stages are not those of the stage before it with a pass less ahead: "
            f"{difference[0]} differs by {difference[1]}; {_ADVICE}"
        )


def _compare(derived: Trace, captured: Trace, derived_entries: Ints, captured_entries: Ints) -> None:
    ours = _without_order_of_sets(_contents(derived, derived_entries))
    theirs = _without_order_of_sets(_contents(captured, captured_entries))
    for (entry, call), (other_entry, other) in zip(ours, theirs):
        if call != other:
            raise InputError(
                f"a stage does {_words(captured, other_entry)} where the stage before it with a pass less ahead "
                f"does {_words(derived, entry)}, so it is not known what further stages do; {_ADVICE}"
            )
    if len(ours) != len(theirs):
        raise InputError(
            f"a stage makes {len(theirs):,} calls in a step and the stage before it with a pass less ahead "
            f"{len(ours):,}, so it is not known what further stages do; {_ADVICE}"
        )


def _last_step_calls(trace: Trace) -> Ints:
    """Entries of the last step's calls on the device."""
    step = trace.steps()[-1]
    entries = program_calls(trace, definitions(trace))
    entries = entries[(entries >= step.start) & (entries < step.stop)]
    of_device: Ints = entries[~np.isin(trace.columns["kind"][entries], _OF_THE_HOST)]
    return of_device


def _beside_messages(trace: Trace, entries: Ints) -> tuple[Ints, Ints]:
    """The entries that neither are messages nor order them, and those that do."""
    kinds, streams, signatures = (trace.columns[name][entries] for name in ("kind", "stream", "signature"))
    is_sent = (kinds == Kind.COLLECTIVE) & np.isin(signatures, messages_between_stages(trace))
    message_streams = np.unique(streams[is_sent])
    is_on_stream = np.isin(streams, message_streams)
    defined_at = definitions(trace)
    records = trace.columns["stream"][np.maximum(defined_at[entries], 0)]
    is_wait = (kinds == Kind.STREAM_WAIT) & (defined_at[entries] >= 0)
    orders_others = is_wait & np.isin(records, message_streams)
    is_recorded_for = np.isin(entries, defined_at[entries[is_wait & is_on_stream]])
    is_message = is_on_stream | orders_others | is_recorded_for
    return entries[~is_message], entries[is_message]


def _contents(trace: Trace, entries: Ints) -> list[tuple[int, tuple[Hashable, ...]]]:
    """Entry and content of each call, with the words of the trace's tables; last, what it refers to among them."""
    step, defined_at = trace.steps()[-1], definitions(trace)
    defining = np.searchsorted(entries, defined_at[entries])
    distances = np.where(defined_at[entries] >= step.start, np.arange(len(entries)) - defining, -1)
    numbers = [trace.columns[name][entries].tolist() for name in ("kind", "phase", "stream")]
    signatures = [_without_alignment(signature) for signature in trace.signatures]
    tables = {"signature": signatures, "scope": trace.scopes, "operator": trace.operators, "site": trace.sites}
    words = [[_at(table, index) for index in trace.columns[name][entries].tolist()] for name, table in tables.items()]
    return list(zip(entries.tolist(), zip(*numbers, *words, distances.tolist())))


def _without_alignment(signature: Signature) -> Signature:
    """The signature, of work on one element without how that is accessed: it depends on the address's alignment.

    Megatron adds the routers' losses at the number of the layer, and some of these addresses let a kernel load several.
    """
    return vectorised(signature) if isinstance(signature, Elementwise) and signature.elements == 1 else signature


def _without_order_of_sets(contents: list[tuple[int, tuple[Hashable, ...]]]) -> list[tuple[int, tuple[Hashable, ...]]]:
    """The calls, those of one operator in a row by their sizes.

    Megatron goes through the parameters of a bucket in the order of a Python set, which is that of their addresses: the
    order of their casts and transposes differs between ranks that do the same.
    """
    ordered: list[tuple[int, tuple[Hashable, ...]]] = []
    for _, calls in itertools.groupby(contents, key=lambda item: (item[1][:3], item[1][4:])):
        ordered += sorted(calls, key=lambda item: str(item[1][3]))
    return ordered


def _at(table: Sequence[Hashable], index: int) -> Hashable:
    return table[index] if index >= 0 else None


def _words(trace: Trace, entry: int) -> str:
    """A call with its operator, module and entry."""
    kind = Kind(int(trace.columns["kind"][entry])).name
    operator, scope = int(trace.columns["operator"][entry]), int(trace.columns["scope"][entry])
    parts = (kind, _at(trace.operators, operator), _at(trace.scopes, scope))
    return f"{' '.join(str(part) for part in parts if part)} (entry {entry:,})"
