"""An overview of all simulated ranks: one row per rank with the dominant work of each pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from presim.app.view.panes import Shown
from presim.app.view.tracks import KINDS

_MOST_RANKS = 256
_COMPUTE = 5  # the first kinds are phases of compute
_IDLE = "."


def overview(shown: Shown, pixels: int) -> dict[str, Any]:
    """The steady step as a row of characters per rank, one character per pixel.

    A digit is the dominant kind of work (`KINDS`) in the pixel, compute before communication. A dot is idle time.
    """
    first, last = shown.span_ns
    edges = np.linspace(first, last, pixels + 1)
    return {
        "from": first,
        "to": last,
        "kinds": KINDS,
        "ranks": [
            {"rank": rank, "row": _row(sum(track.shares(edges) for track in shown.tracks[rank]))}
            for rank in sorted(shown.tracks)[:_MOST_RANKS]
        ],
        "left_out": max(len(shown.tracks) - _MOST_RANKS, 0),
    }


def _row(shares: Any) -> str:
    if isinstance(shares, int):  # a rank without a stream
        return ""
    compute, other = shares[:, :_COMPUTE], shares[:, _COMPUTE:]
    letters = np.where(compute.sum(axis=1) >= 0.5, compute.argmax(axis=1), other.argmax(axis=1) + _COMPUTE)
    busy = (compute.sum(axis=1) >= 0.5) | (other.sum(axis=1) >= 0.5)
    return "".join(str(letter) if is_busy else _IDLE for letter, is_busy in zip(letters.tolist(), busy.tolist()))
