"""The chain of work and waits that makes the step as long as it is."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.figures.time import Slice
from presim.says import says


class Link(msgspec.Struct, frozen=True):
    """One piece of the chain."""

    rank: Annotated[int, says("The captured rank on which it happens.")]
    kind: Annotated[str, says("compute, communication, copy, host, launch latency, synchronisation or device busy.")]
    name: Annotated[str, says("The operator, collective or kernel family.")]
    module: Annotated[str, says("Module path; empty outside modules and for the host.")]
    start_s: Annotated[float, says("Seconds since the start of the step.")]
    end_s: Annotated[float, says("The same.")]


class CriticalPath(msgspec.Struct, frozen=True):
    """The chain from the end of the step back to its start, across ranks. Its pieces touch, so they add up to it."""

    length_s: Annotated[float, says("Seconds of the chain: the step of the rank that ends last.")]
    by_kind: Annotated[list[Slice], says("The chain by kind of piece.")]
    by_name: Annotated[list[Slice], says("By operator, collective or kernel family, longest first.")]
    by_module: Annotated[list[Slice], says("By module, numbered siblings merged, longest first.")]
    by_rank: Annotated[list[Slice], says("By captured rank.")]
    changes_of_rank: Annotated[int, says("How often it goes on at another rank, the last one to a collective.")]
    longest: Annotated[list[Link], says("The longest pieces, in the order of time.")]
