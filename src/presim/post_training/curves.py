"""Seconds of a micro-batch between the points of a grid."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Curve:
    """Seconds of a micro-batch by its tokens and its sum of squared lengths."""

    tokens: Floats
    linear_s: Floats  # without attention's quadratic part, at each grid point
    quadratic_s: Floats  # for each unit of squared length, likewise

    def seconds(self, tokens: Floats, squares: Floats) -> Floats:
        """Seconds of each micro-batch; below the grid in proportion to the part above the first point's tokens."""
        grid = np.concatenate([[0.0], self.tokens])
        floor_s = max(2 * self.linear_s[0] - self.linear_s[-1] * 2 * self.tokens[0] / self.tokens[-1], 0.0)
        linear = np.interp(tokens, grid, np.concatenate([[min(floor_s, self.linear_s[0])], self.linear_s]))
        return np.asarray(linear + np.interp(tokens, self.tokens, self.quadratic_s) * squares)

    def scaled(self, factor: float) -> Curve:
        """The curve with all seconds multiplied."""
        return Curve(self.tokens, self.linear_s * factor, self.quadratic_s * factor)
