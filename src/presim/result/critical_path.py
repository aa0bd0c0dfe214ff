"""The chain of work and waits that makes the step as long as it is."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.result.time import Slice
from presim.system.files.field_docs import doc


class Link(msgspec.Struct, frozen=True):
    """One piece of the chain."""

    rank: Annotated[int, doc("The captured rank on which it happens.")]
    kind: Annotated[str, doc("compute, communication, copy, host, launch latency, synchronisation or device busy.")]
    name: Annotated[str, doc("The operator, collective or kernel family.")]
    module: Annotated[str, doc("Module path; empty outside modules and for the host.")]
    start_s: Annotated[float, doc("Seconds since the start of the step.")]
    end_s: Annotated[float, doc("The same.")]


class CriticalPath(msgspec.Struct, frozen=True):
    """The chain from the end of the step back to its start, across ranks. Its pieces touch, so they add up to it."""

    length_s: Annotated[float, doc("Seconds of the chain: the step of the rank that ends last.")]
    by_kind: Annotated[list[Slice], doc("The chain by kind of piece.")]
    by_name: Annotated[list[Slice], doc("By operator, collective or kernel family, longest first.")]
    by_module: Annotated[list[Slice], doc("By module, numbered siblings merged, longest first.")]
    by_rank: Annotated[list[Slice], doc("By captured rank.")]
    changes_of_rank: Annotated[int, doc("How often it goes on at another rank, the last one to a collective.")]
    longest: Annotated[list[Link], doc("The longest pieces, in the order of time.")]
