"""What calls of added layers refer to, by the law that the captured layers follow."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.layer_regions import Regions

Ints = NDArray[np.int64]
_IMAGE, _PARALLEL, _REVERSED, _NONE = range(4)  # the same call as before; of the layer as far on; as far back; no law


@dataclasses.dataclass(frozen=True, eq=False)
class CallOrigins:
    """Where the calls of a trace come from that has ``added`` layers more.

    Added repetitions come after the middle one of each region, and are copies of it.
    """

    regions: Regions
    added: int
    region: Ints  # by captured call, like the next two
    repetition: Ints
    position: Ints
    repeated: str = "layers"

    @staticmethod
    def of(regions: Regions, added: int, num_calls: int) -> CallOrigins:
        """The layout of so many captured calls."""
        return CallOrigins(regions, added, *regions.coordinates(num_calls))

    @property
    def middles(self) -> Ints:
        """The repetition that is copied [regions]."""
        return self.regions.counts // 2

    def sources(self) -> tuple[Ints, Ints]:
        """For each call of the extended trace, the captured one that it copies, and by how many layers it is later."""
        pieces, shifts = [], []
        begin = 0
        for first, period, middle in zip(self.regions.begins, self.regions.periods, self.middles):
            end = int(first + period * (middle + 1))
            copied = np.arange(end - period, end)
            pieces += [np.arange(begin, end), np.tile(copied, self.added)]
            shifts += [self.shift_of(np.arange(begin, end)), np.repeat(np.arange(1, self.added + 1), period)]
            begin = end
        tail = np.arange(begin, len(self.region))
        return np.concatenate([*pieces, tail]), np.concatenate([*shifts, self.shift_of(tail)])

    def shift_of(self, calls: Ints) -> Ints:
        """By how many repetitions captured calls come later than they did."""
        region = self.region[calls]
        is_later = (region >= 0) & (self.repetition[calls] > self.middles[region]) if len(self.middles) else region >= 0
        shift: Ints = np.where(is_later, self.added, 0)
        return shift

    def images(self, calls: Ints, shifts: Ints) -> Ints:
        """Where captured calls are in the extended trace, each by so many repetitions later in its region."""
        copied_ends = self.regions.begins + self.regions.periods * (self.middles + 1)
        inserted = np.concatenate([[0], np.cumsum(self.regions.periods * self.added)])
        region = self.region[calls]
        before = np.searchsorted(copied_ends, calls, side="right")  # regions whose added repetitions precede
        outside: Ints = calls + inserted[before]
        if not len(copied_ends):
            return outside
        inside = calls + inserted[region] + shifts * self.regions.periods[region]
        images: Ints = np.where(region >= 0, inside, outside)
        return images

    def places(self) -> Ints:
        """Where each captured call is in the extended trace."""
        calls = np.arange(len(self.region))
        return self.images(calls, self.shift_of(calls))

    def targets(self, captured: Ints, sources: Ints, shifts: Ints) -> tuple[Ints, Ints]:
        """What the extended trace's calls refer to, -1 for nothing, and the captured calls for which no law holds.

        ``captured``: what captured calls refer to, -1 for nothing.
        """
        laws = self._laws(captured)
        target, law = captured[sources], laws[sources]
        is_copy = shifts > self.shift_of(sources)
        shift = np.select(
            [law == _PARALLEL, law == _REVERSED], [shifts, self.added - shifts], default=self.shift_of(target)
        )
        result = np.where(target >= 0, self.images(target, shift), -1)
        return result, np.unique(sources[(law == _NONE) & is_copy])

    def free_places(self, captured: Ints, sources: Ints, shifts: Ints) -> Ints:
        """See `presim.composition.replan.copied_calls.CallLayout`."""
        return self.targets(captured, sources, shifts)[0]

    def _laws(self, captured: Ints) -> Ints:
        """By captured call: how what it refers to follows from its repetition."""
        laws = np.full(len(captured), _IMAGE, np.int64)
        for begin, period, count, middle in zip(
            self.regions.begins, self.regions.periods, self.regions.counts, self.middles
        ):
            rows = captured[begin : begin + period * count].reshape(count, period)
            region, position = (np.where(rows >= 0, column[rows], -1) for column in (self.region, self.position))
            repetition = np.where(region >= 0, self.repetition[rows], 0)
            law = np.full(period, _NONE, np.int64)
            step = np.zeros(period, np.int64)
            for neighbour in (middle + 1, middle - 1):  # the first or last repetition may differ; the latter decides
                if not 0 <= neighbour < count:
                    continue
                is_like = (region[middle] == region[neighbour]) & (position[middle] == position[neighbour])
                is_like &= (region[middle] >= 0) | (rows[middle] == rows[neighbour])
                steps = (repetition[middle] - repetition[neighbour]) * (middle - neighbour)
                is_law = is_like & (np.abs(steps) <= 1)
                law = np.where(is_law, np.select([steps == 1, steps == -1], [_PARALLEL, _REVERSED], _IMAGE), law)
                step = np.where(is_law, steps, step)
            line = repetition[middle] + step * (np.arange(count) - middle)[:, None]
            follows = (region == region[middle]) & (position == position[middle]) & (repetition == line)
            block = np.where(follows, law, _IMAGE)
            block[middle] = law
            laws[begin : begin + period * count] = block.ravel()
        return laws
