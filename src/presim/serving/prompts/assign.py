"""Chooses for each prompt of a batch over which ranks it is split, and how, so that the slowest rank is done soonest.

All ranks step together, so a batch takes as long as its slowest rank. Prompts that share a group of ranks share its
all-gathers. A few prompts are tried in all combinations. More start from the best of simple plans, and then single
prompts and pairs on the slowest rank change their way as long as that helps.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from presim.serving.prompts import shares
from presim.serving.prompts.prompt_times import PromptTimes
from presim.serving.prompts.shares import Way

Floats = NDArray[np.float64]
_MOST_TRIED = 20_000  # combinations that are all tried
_MOST_PAIRED = 24  # prompts of a batch of which pairs are changed together; single changes do for more
_MEAN = 1e-3  # weight of the mean beside the slowest rank, so that a shorter sum wins among equals


@dataclasses.dataclass(frozen=True)
class RankLoad:
    """What all ranks have to do; several loads at once have leading dimensions."""

    tokens: Floats  # [rank]
    attention_ns: Floats  # [rank]
    calls: Floats  # [rank]
    gathered: dict[int, Floats]  # degree -> tokens of the prompts of each group of ranks

    def __add__(self, other: RankLoad) -> RankLoad:
        return RankLoad(
            self.tokens + other.tokens,
            self.attention_ns + other.attention_ns,
            self.calls + other.calls,
            {degree: tokens + other.gathered[degree] for degree, tokens in self.gathered.items()},
        )

    def __sub__(self, other: RankLoad) -> RankLoad:
        return RankLoad(
            self.tokens - other.tokens,
            self.attention_ns - other.attention_ns,
            self.calls - other.calls,
            {degree: tokens - other.gathered[degree] for degree, tokens in self.gathered.items()},
        )

    def __getitem__(self, index: int) -> RankLoad:
        gathered = {degree: tokens[index] for degree, tokens in self.gathered.items()}
        return RankLoad(self.tokens[index], self.attention_ns[index], self.calls[index], gathered)


@dataclasses.dataclass(frozen=True)
class Found:
    """A way for each prompt."""

    ways: tuple[Way, ...]
    parts_ns: Floats  # [rank, part]: linear layers, attention, gathers (`prices.PARTS`)
    exact: bool = False  # all combinations were tried

    @property
    def ns(self) -> float:
        """Time of the slowest rank."""
        return float(self.parts_ns.sum(axis=1).max())


class PromptBatch:
    """The prompts of one step with all ways to split them."""

    def __init__(self, prices: PromptTimes, lengths: Sequence[int]) -> None:
        self.prices, self.lengths = prices, tuple(lengths)
        self.ways = [shares.ways(length, prices.ranks) for length in lengths]
        split = {
            (length, way.degree, way.layout): way
            for length, prompt_ways in zip(lengths, self.ways)
            for way in prompt_ways
        }
        prices.learn(call for (length, *_), way in split.items() for rank in shares.calls(length, way) for call in rank)
        self._loads = [self._load(length, prompt_ways) for length, prompt_ways in zip(lengths, self.ways)]

    def found(self, way_numbers: Sequence[int], *, exact: bool = False) -> Found:
        """The plan that gives each prompt the way of that number."""
        ways = tuple(prompt_ways[number] for prompt_ways, number in zip(self.ways, way_numbers))
        return Found(ways, np.stack(self._parts(self._sum(way_numbers)), axis=-1), exact)

    def uniform(self, layout: Literal["zigzag", "contiguous"]) -> Found:
        """Every prompt over all ranks, or over as many as it has tokens for."""
        return self.found([self._widest(prompt_ways, layout) for prompt_ways in self.ways])

    def whole(self) -> Found:
        """No prompt split: the longest first, each to the rank that is done soonest with it."""
        return self.found(self._greedy(lambda way: way.degree == 1))

    def best(self) -> Found:
        """The plan with the shortest time found; never longer than the simple ones."""
        counts = [len(prompt_ways) for prompt_ways in self.ways]
        if math.prod(counts) <= _MOST_TRIED:
            every = list(itertools.product(*map(range, counts)))
            return self.found(
                every[int(np.argmin([self._cost(self._sum(way_numbers)) for way_numbers in every]))], exact=True
            )
        starts = [
            [self._widest(prompt_ways, "zigzag") for prompt_ways in self.ways],
            [self._widest(prompt_ways, "contiguous") for prompt_ways in self.ways],
            self._greedy(lambda way: way.degree == 1),
            self._greedy(lambda way: True),
        ]
        improved = [self._improve(start) for start in starts]
        return self.found(min(improved, key=lambda way_numbers: float(self._cost(self._sum(way_numbers)))))

    def _widest(self, prompt_ways: Sequence[Way], layout: str) -> int:
        fitting = [number for number, way in enumerate(prompt_ways) if way.layout in (layout, "whole")]
        return max(fitting, key=lambda number: (prompt_ways[number].degree, -prompt_ways[number].first))

    def _load(self, length: int, prompt_ways: Sequence[Way]) -> RankLoad:
        """The loads of all ways of a prompt: arrays [way, rank]."""
        count, ranks = len(prompt_ways), self.prices.ranks
        gathered = {degree: np.zeros((count, ranks // degree)) for degree in shares.degrees(ranks) if degree > 1}
        load = RankLoad(np.zeros((count, ranks)), np.zeros((count, ranks)), np.zeros((count, ranks)), gathered)
        for number, way in enumerate(prompt_ways):
            for rank, calls in zip(way.ranks, shares.calls(length, way)):
                load.tokens[number, rank] = sum(queries for queries, _ in calls)
                load.attention_ns[number, rank] = self.prices.attention_ns(calls)
                load.calls[number, rank] = len(calls)
            if way.degree > 1:
                gathered[way.degree][number, way.first // way.degree] = length
        return load

    def _sum(self, way_numbers: Iterable[int]) -> RankLoad:
        picked = [load[number] for load, number in zip(self._loads, way_numbers)]
        return sum(picked[1:], start=picked[0])

    def _parts(self, load: RankLoad) -> tuple[Floats, Floats, Floats]:
        """(linear layers, attention, gathers) of each rank, ns."""
        attention = load.attention_ns - self.prices.fixed_ns * np.maximum(load.calls - 1, 0)
        gathers = np.zeros_like(attention)
        for degree, tokens in load.gathered.items():
            gathers = gathers + np.repeat(self.prices.gather_ns(degree, tokens), degree, axis=-1)
        return self.prices.linear_ns(load.tokens), attention, gathers

    def _cost(self, load: RankLoad) -> Floats:
        total = sum(self._parts(load), start=np.zeros(1))
        cost: Floats = total.max(axis=-1) + _MEAN * total.mean(axis=-1)
        return cost

    def _greedy(self, allowed: Callable[[Way], bool]) -> list[int]:
        """The longest prompt first, each in the way that is best with those before it."""
        way_numbers = [0] * len(self.lengths)
        load: RankLoad | None = None
        for prompt_index in sorted(range(len(self.lengths)), key=lambda prompt_index: -self.lengths[prompt_index]):
            every = self._loads[prompt_index] if load is None else self._loads[prompt_index] + load
            costs = np.where([allowed(way) for way in self.ways[prompt_index]], self._cost(every), np.inf)
            way_numbers[prompt_index] = int(costs.argmin())
            load = every[way_numbers[prompt_index]]
        return way_numbers

    def _improve(self, way_numbers: Sequence[int]) -> list[int]:
        """Change the way of one prompt, or of two, as long as that helps; those on the slowest rank first."""
        now = list(way_numbers)
        load = self._sum(now)
        while True:
            cost = float(self._cost(load))
            slowest = int(sum(self._parts(load), start=np.zeros(1)).argmax())
            busy = [
                prompt_index
                for prompt_index, number in enumerate(now)
                if slowest in self.ways[prompt_index][number].ranks
            ]
            changed = self._single(now, load, busy) or self._pair(now, load, busy)
            if changed is None or changed[0] >= cost * (1 - 1e-9):
                return now
            _, load, moves = changed
            for prompt_index, number in moves.items():
                now[prompt_index] = number

    def _single(self, now: Sequence[int], load: RankLoad, busy: Sequence[int]) -> Change | None:
        best_change: Change | None = None
        before = float(self._cost(load))
        for prompt_index in busy:
            every = self._loads[prompt_index] + (load - self._loads[prompt_index][now[prompt_index]])
            costs = self._cost(every)
            number = int(costs.argmin())
            if costs[number] < (best_change[0] if best_change else before * (1 - 1e-9)):
                best_change = float(costs[number]), every[number], {prompt_index: number}
        return best_change

    def _pair(self, now: Sequence[int], load: RankLoad, busy: Sequence[int]) -> Change | None:
        """Two prompts change places: the first one takes its best way without the second, which then takes its own."""
        if len(now) > _MOST_PAIRED:
            return None
        before = float(self._cost(load))
        for prompt_index, other in itertools.product(busy, range(len(now))):
            if prompt_index == other or now[prompt_index] == now[other]:
                continue
            without = load - self._loads[prompt_index][now[prompt_index]] - self._loads[other][now[other]]
            first = self._loads[prompt_index] + without
            number = int(self._cost(first).argmin())
            second = self._loads[other] + first[number]
            costs = self._cost(second)
            last = int(costs.argmin())
            if costs[last] < before * (1 - 1e-9):
                return float(costs[last]), second[last], {prompt_index: number, other: last}
        return None


Change: TypeAlias = tuple[float, RankLoad, dict[int, int]]  # cost, load, new ways by prompt
