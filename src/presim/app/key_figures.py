"""Key figures and summaries of results, as types."""

from __future__ import annotations

import msgspec


class KeyFigure(msgspec.Struct, frozen=True):
    """A key figure. Two results are compared by figures of one key."""

    key: str
    label: str
    number: float | None  # None: cannot be compared
    text: str
    remark: str = ""
    better: int = 0  # 1: larger is better; -1: smaller is better
    unit: str = ""  # of the number
    low: float | None = None  # of its 80 % interval; None: it has none
    high: float | None = None


class Summary(msgspec.Struct, frozen=True):
    """What a result says first: of which model, GPU and cluster, and its key figures."""

    subject: str
    gpu: str
    cluster: str
    figures: list[KeyFigure]
    warning: str = ""
