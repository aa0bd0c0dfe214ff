"""Compact notation for sets of ranks: ``0:32:1,64:96:8`` (first:end:step) or single numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from presim.errors import InputError
from presim.system.files import shortened
from presim.units.quantities import GPUS

_SPAN = re.compile(r"(\d{1,7})(?::(\d{1,7})(?::([1-9]\d{0,6}))?)?", re.ASCII)


def to_text(ranks: Sequence[int]) -> str:
    """Ascending ranks as spans.

    >>> to_text([0, 1, 2, 8, 16, 24, 99])
    '0:3:1,8:25:8,99'
    """
    return ",".join(_span_text(span) for span in to_spans(ranks))


def to_spans(ranks: Sequence[int]) -> list[range]:
    """The longest spans of equal steps, from the front.

    >>> to_spans([0, 4, 8, 9])
    [range(0, 9, 4), range(9, 10)]
    """
    if isinstance(ranks, range):
        return [ranks] if ranks else []
    spans: list[range] = []
    start = 0
    while start < len(ranks):
        end = start + 1
        step = ranks[end] - ranks[start] if end < len(ranks) else 1
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        if end - start == 2 and step > 1:
            end -= 1  # two numbers alone form no span
        spans.append(range(ranks[start], ranks[end - 1] + 1, step if end - start > 1 else 1))
        start = end
    return spans


def from_text(text: str) -> list[int]:
    """The ranks that `to_text` wrote.

    >>> from_text("0:3:1,99")
    [0, 1, 2, 99]

    Raises:
        InputError: it is another text, or has more ranks than a job.
    """
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        match = _SPAN.fullmatch(part)
        numbers = [int(number) for number in match.groups() if number] if match else []
        span = range(*numbers) if len(numbers) > 1 else range(numbers[0], numbers[0] + 1) if numbers else range(0)
        if not span or len(ranks) + len(span) > GPUS.greatest:
            raise InputError(
                f"{shortened(text)!r} are not the ranks of a job, such as 0:8:1,12, of which there are at most "
                f"{GPUS.greatest:,}; write the file again"
            )
        ranks += span
    return ranks


def count(spans: Iterable[range]) -> int:
    """Number of ranks in spans."""
    return sum(map(len, spans))


def _span_text(span: range) -> str:
    return str(span.start) if len(span) == 1 else f"{span.start}:{span.stop}:{span.step}"
