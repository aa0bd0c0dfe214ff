"""The order of entries where a forward and a backward pass run side by side, as DualPipe's do.

Each pass is cut where the compute stream waits for communication: the exchange of tokens, a gather, a reduction. The
pieces of both passes take turns, so that the communication before a piece runs beside the other pass's piece. DeepSeek
aligns attention, dispatch, experts and combine by hand (DeepSeek-V3's report, section 3.2.1); here the pieces are
spread evenly, in the order that each pass has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.composition.names import Ints
from presim.trace.schema import Kind

_COMPUTE = 0  # stream


def entry_order(kind: NDArray[Any], stream: NDArray[Any], pairs: Sequence[tuple[int, int, int]]) -> Ints:
    """Positions of the entries in the order in which the host issues them.

    ``kind``, ``stream``: of each entry, one pass after the other. ``pairs``: for each pair the entry at which the
    forward pass begins, that at which the backward pass does, and that after both.
    """
    order = np.arange(len(kind))
    is_wait = (kind == Kind.STREAM_WAIT) & (stream == _COMPUTE)
    for begin, middle, end in pairs:
        parts = [_ranks(is_wait[begin:middle]), _ranks(is_wait[middle:end])]
        order[begin:end] = begin + np.argsort(np.concatenate(parts), kind="stable")
    return order


def _ranks(is_wait: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each entry of a pass, the middle of its piece between 0 and 1; a wait begins a piece."""
    piece = np.cumsum(is_wait)
    count = int(piece[-1]) + 1 if len(piece) else 1
    ranks: NDArray[np.float64] = (piece + 0.5) / count
    return ranks
