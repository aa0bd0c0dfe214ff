"""Whether a stage made of another one is the captured stage."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from presim.composition.replan.cycles import program_calls
from presim.composition.replan.object_names import definitions
from presim.errors import InputError
from presim.trace.schema import Kind, Trace

_ADVICE = "capture the job with the number of stages that you want"
_OF_THE_HOST = (Kind.HOST_CALL, Kind.HOST_WAIT)


def check_equal(derived: Trace, captured: Trace) -> None:
    """Check that two traces make the same calls in their last step, which refer to the same calls of it.

    Raises:
        InputError: they do not; the first call that differs is named.
    """
    ours, theirs = _last_step(derived), _last_step(captured)
    for (entry, call), (other_entry, other) in zip(ours, theirs):
        if call != other:
            raise InputError(
                f"the third stage does {_words(captured, other_entry)} where the second one with a pass less ahead "
                f"does {_words(derived, entry)}, so it is not known what further stages do; {_ADVICE}"
            )
    if len(ours) != len(theirs):
        raise InputError(
            f"the third stage makes {len(theirs):,} calls in a step and the second one with a pass less ahead "
            f"{len(ours):,}, so it is not known what further stages do; {_ADVICE}"
        )


def _last_step(trace: Trace) -> list[tuple[int, Hashable]]:
    """Entry and content of each call of the last step, with the words of the trace's tables."""
    step, defined_at = trace.steps()[-1], definitions(trace)
    entries = program_calls(trace, defined_at)
    entries = entries[(entries >= step.start) & (entries < step.stop)]
    entries = entries[~np.isin(trace.columns["kind"][entries], _OF_THE_HOST)]
    defining = np.searchsorted(entries, defined_at[entries])
    distances = np.where(defined_at[entries] >= step.start, np.arange(len(entries)) - defining, -1)
    numbers = [trace.columns[name][entries].tolist() for name in ("kind", "phase", "stream")]
    tables = {"signature": trace.signatures, "scope": trace.scopes, "operator": trace.operators, "site": trace.sites}
    words = [[_at(table, index) for index in trace.columns[name][entries].tolist()] for name, table in tables.items()]
    return list(zip(entries.tolist(), zip(*numbers, *words, distances.tolist())))


def _at(table: Sequence[Hashable], index: int) -> Hashable:
    return table[index] if index >= 0 else None


def _words(trace: Trace, entry: int) -> str:
    """A call with its operator, module and entry."""
    kind = Kind(int(trace.columns["kind"][entry])).name
    operator, scope = int(trace.columns["operator"][entry]), int(trace.columns["scope"][entry])
    parts = (kind, _at(trace.operators, operator), _at(trace.scopes, scope))
    return f"{' '.join(str(part) for part in parts if part)} (entry {entry:,})"
