"""Search spaces: knobs with values to try; the points are their product."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from presim.errors import InputError
from presim.planner.knobs import field_of, guess, read_value, short
from presim.planner.trials.trial import Point, Value, format_value


@dataclasses.dataclass(frozen=True)
class Space:
    """Varied and fixed knobs. The points are the product of the varied knobs' values."""

    varied: Mapping[str, tuple[Value, ...]]
    fixed: Mapping[str, Value]

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.varied.values())

    def __iter__(self) -> Iterator[Point]:
        """Iterate over all points; the last knob varies fastest."""
        for values in itertools.product(*self.varied.values()):
            yield {**self.fixed, **dict(zip(self.varied, values))}

    def number(self, point: Mapping[str, Value]) -> int:
        """Index of a point in iteration order."""
        index = 0
        for name, values in self.varied.items():
            # compare text, because 1 == True
            index = index * len(values) + [*map(format_value, values)].index(format_value(point[name]))
        return index

    def digest(self) -> str:
        """Hash that identifies this space."""
        text = msgspec.json.encode([list(self.varied.items()), sorted(self.fixed.items())])
        return hashlib.sha256(text).hexdigest()[:16]

    def describe(self) -> str:
        """One line with the knobs and the number of points.

        >>> Space({"tensor": (1, 2)}, {"sequence": 4096}).describe()
        'tp 1, 2: 2 points'
        """
        knobs = "; ".join(
            f"{short(name)} {', '.join(map(format_value, values))}" for name, values in self.varied.items()
        )
        return f"{knobs or 'nothing varies'}: {len(self):,} point{'s' if len(self) != 1 else ''}"


def parse_knobs(words: Sequence[str], *, any_name: bool = False) -> dict[str, tuple[Value, ...]]:
    """Parse knobs as `--vary` accepts them: ``tp=2,4,8``, ``nodes=16:128`` (doubling), ``mbs=1:8:1`` (in steps).

    ``any_name``: names are the user's own placeholders, not fields of a plan.

    >>> parse_knobs(["tp=2,4", "nodes=16:128"])
    {'tensor': (2, 4), 'nodes': (16, 32, 64, 128)}

    Raises:
        InputError: a word is not a knob with values.
    """
    knobs: dict[str, tuple[Value, ...]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.strip() or not text.strip():
            raise InputError(f"{word!r} is not a knob with values: write e.g. tp=2,4,8 or nodes=16:128")
        field = name.strip() if any_name else field_of(name)
        if field in knobs:
            raise InputError(f"{name} is varied twice; give all its values in one --vary")
        values = [value for part in text.split(",") for value in _values(field, part.strip(), any_name)]
        knobs[field] = tuple(dict.fromkeys(values))
    return knobs


def _values(name: str, text: str, any_name: bool) -> list[Value]:
    if not text:
        raise InputError(f"{name} has an empty value: remove the comma, or write e.g. {name}=1,2")
    bounds = text.split(":")
    if len(bounds) > 1 and all(bound.strip().isdecimal() for bound in bounds):
        return _range(name, [int(bound) for bound in bounds], text)
    return [guess(text) if any_name else read_value(name, text)]


def _range(name: str, bounds: Sequence[int], text: str) -> list[Value]:
    first, last, *step = bounds
    if len(bounds) > 3 or first < 1 or last < first or step == [0]:
        raise InputError(
            f"{name}={text} is not a range: write first:last for doubling, e.g. 16:128, or first:last:step, with first "
            "at least 1"
        )
    if step:
        return list(range(first, last + 1, step[0]))
    values: list[Value] = []
    while first <= last:
        values.append(first)
        first *= 2
    return values
