"""Divides a window of time at event boundaries so that the state is constant within each segment."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Segments:
    """``bounds[i]`` to ``bounds[i + 1]`` is segment i; ns, strictly ascending."""

    bounds: Ints
    repeated_interval: tuple[int, int, int] | None = None  # start and end in ns; it occurs so many times more

    @staticmethod
    def cut(start: int, end: int, *points: Ints, repeated_interval: tuple[int, int, int] | None = None) -> Segments:
        """The window ``[start, end]``, cut at ``points`` that lie within; ``repeated_interval``: as in `Segments`."""
        if repeated_interval:
            points = (*points, np.array(repeated_interval[:2], np.int64))
        inside = [np.clip(values, start, end) for values in points]
        points_ = np.sort(np.concatenate([np.array([start, end], np.int64), *inside]))
        return Segments(points_[np.append(True, points_[1:] != points_[:-1])], repeated_interval)

    @functools.cached_property
    def lengths(self) -> Ints:
        """Time that passes in each segment, ns."""
        lengths = np.diff(self.bounds)
        if self.repeated_interval:
            first, last = np.searchsorted(self.bounds, self.repeated_interval[:2])
            lengths[first:last] *= 1 + self.repeated_interval[2]
        return lengths

    def count(self, starts_ns: Ints, ends_ns: Ints) -> Ints:
        """Number of intervals that cover each segment; interval ends must be cut points."""
        return self.count_at(self.places(starts_ns), self.places(ends_ns))

    def count_at(self, first: Ints, last: Ints) -> Ints:
        """`count`, for interval ends given as indices of bounds."""
        size = len(self.bounds)
        change = np.bincount(first, minlength=size) - np.bincount(last, minlength=size)
        return np.cumsum(change)[:-1]

    def total(self, mask: Bools) -> int:
        """Summed length of the chosen segments, ns."""
        return int(self.lengths[mask].sum())

    def shared(self, mask: Bools, starts_ns: Ints, ends_ns: Ints) -> Floats:
        """The length of the chosen segments, split equally between the intervals that cover them, ns per interval.

        A single cumulative sum serves all intervals.
        """
        return self.shared_at(mask, self.places(starts_ns), self.places(ends_ns))

    def shared_at(self, mask: Bools, first: Ints, last: Ints) -> Floats:
        """`shared`, for interval ends given as indices of bounds."""
        count = self.count_at(first, last)
        density = np.where(mask & (count > 0), self.lengths / np.maximum(count, 1), 0.0)
        integral = np.concatenate([[0.0], np.cumsum(density)])
        parts: Floats = integral[last] - integral[first]
        return parts

    def places(self, points: Ints) -> Ints:
        """Indices of points in the bounds; points outside the window map to its ends."""
        return np.searchsorted(self.bounds, np.clip(points, self.bounds[0], self.bounds[-1]))
