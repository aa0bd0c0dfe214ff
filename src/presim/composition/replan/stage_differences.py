"""Whether a stage made of another one is the captured stage."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.cycles import program_calls
from presim.composition.replan.object_names import definitions
from presim.errors import InputError
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]
_OF_THE_HOST = (Kind.HOST_CALL, Kind.HOST_WAIT)


def check_equal(derived: Trace, captured: Trace, entries: Ints) -> None:
    """Check that two traces make the same calls in their last step; ``entries``: of the captured one's calls.

    Raises:
        InputError: they do not; the first call that differs is named.
    """
    derived_entries = program_calls(derived, definitions(derived))
    ours, theirs = _last_step(derived, derived_entries), _last_step(captured, entries)
    for (entry, call), (other_entry, other) in zip(ours, theirs):
        if call != other:
            raise InputError(
                f"the third stage does {_words(captured, other_entry)} where the second one with a pass less ahead "
                f"does {_words(derived, entry)}, so it is not known what further stages do; capture the job with the "
                "number of stages that you want"
            )
    if len(ours) != len(theirs):
        raise InputError(
            f"the third stage makes {len(theirs):,} calls in a step and the second one with a pass less ahead "
            f"{len(ours):,}, so it is not known what further stages do; capture the job with the number of stages that "
            "you want"
        )


def _last_step(trace: Trace, entries: Ints) -> list[tuple[int, Hashable]]:
    """Entry and content of each call of the last step, with the words of the trace's tables."""
    step = trace.steps()[-1]
    entries = entries[(entries >= step.start) & (entries < step.stop)]
    entries = entries[~np.isin(trace.columns["kind"][entries], _OF_THE_HOST)]
    rows = zip(*(trace.columns[name][entries].tolist() for name in ("kind", "phase", "stream", "signature", "scope")))
    operators = trace.columns["operator"][entries].tolist()
    return [
        (
            entry,
            (
                kind,
                phase,
                stream,
                _at(trace.signatures, signature),
                _at(trace.scopes, scope),
                _at(trace.operators, operator),
            ),
        )
        for entry, (kind, phase, stream, signature, scope), operator in zip(entries.tolist(), rows, operators)
    ]


def _at(table: tuple[Hashable, ...], index: int) -> Hashable:
    return table[index] if index >= 0 else None


def _words(trace: Trace, entry: int) -> str:
    """A call with its operator, module and entry."""
    kind = Kind(int(trace.columns["kind"][entry])).name
    operator, scope = int(trace.columns["operator"][entry]), int(trace.columns["scope"][entry])
    parts = (kind, _at(trace.operators, operator), _at(trace.scopes, scope))
    return f"{' '.join(str(part) for part in parts if part)} (entry {entry:,})"
