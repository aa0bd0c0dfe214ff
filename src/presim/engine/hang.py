"""A job that cannot go on: what each rank waits for, in words."""

from __future__ import annotations

from collections.abc import Sequence

from presim.errors import InputError
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Collective, family

_NAMED = 6  # entries in a message


class HangError(InputError):
    """The job would hang on the cluster: its ranks wait for each other, or for something that never comes."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the job would hang: {what}. Compare what these ranks call before; no rank's order may differ"
        )


def describe(trace: Trace, entry: int) -> str:
    """One entry with its rank, so that a user finds it."""
    columns = trace.columns
    where = f"rank {trace.manifest.rank}, entry {entry}"
    scope = int(columns["scope"][entry])
    if scope >= 0:
        where += f" in {trace.scopes[scope]}"
    kind = Kind(int(columns["kind"][entry]))
    index = int(columns["signature"][entry])
    if index < 0:
        return f"{where}: {kind.name.lower()}"
    signature = trace.signatures[index]
    if not isinstance(signature, Collective):
        return f"{where}: {family(signature)}"
    groups = trace.manifest.groups
    group = groups[signature.group].name if 0 <= signature.group < len(groups) else f"group {signature.group}"
    peer = f" with its rank {signature.peer}" if signature.peer >= 0 else ""
    return f"{where}: {signature.kind} of {signature.bytes} bytes on {group!r}{peer}"


def hang(stuck: Sequence[tuple[Trace, int]]) -> HangError:
    """The error for entries that began to wait and never went on."""
    named = "; ".join(describe(trace, entry) for trace, entry in stuck[:_NAMED])
    more = f"; and {len(stuck) - _NAMED} more" if len(stuck) > _NAMED else ""
    return HangError(f"nothing can end what these wait for: {named}{more}")
