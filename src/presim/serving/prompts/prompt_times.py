"""Times of a batch of prompts on ranks that split them, priced by the chain that prices captured programs."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from presim.composition.models.description import Model
from presim.hardware import Cluster
from presim.serving.kept_bytes import token_bytes
from presim.serving.prompts import shares
from presim.serving.prompts.shares import Call
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps import mixer_work, stage
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.pricer import Pricer
from presim.serving.steps.times import FIXED_SHARE, backend
from presim.trace.schema import Group
from presim.trace.signatures import Collective

Floats = NDArray[np.float64]
PARTS = ("linear layers", "attention", "gathers")


class PromptTimes:
    """Times of one step of ``ranks`` ranks, each of ``plan.tp`` GPUs: ns, of all layers together."""

    def __init__(self, model: Model, plan: ServingPlan, cluster: Cluster, ranks: int, longest: int) -> None:
        """``longest``: most tokens that one rank can have."""
        self.model, self.plan, self.cluster, self.ranks = model, plan, cluster, ranks
        self._pricer = Pricer(cluster, plan, Overheads())
        self._grid = _grid(longest)
        self._attention: dict[Call, tuple[float, str, float]] = {}
        works_by_tokens = [stage.stage(model, plan, tokens) for tokens in self._grid]
        self._pricer.price([work for works in works_by_tokens for work, _ in works])
        self._linear_ns = np.array(
            [sum(n * self._pricer.total_ns([work]) for work, n in works) for works in works_by_tokens]
        )
        self._block_ns = np.array([self._blocks_ns(tokens) for tokens in self._grid])
        self._gathers = {degree: self._gather_table(degree) for degree in shares.degrees(ranks) if degree > 1}

    def _blocks_ns(self, tokens: int) -> float:
        works = [
            (stage.block(layer, self.model.hidden, self.plan, tokens), count)
            for layer, count in stage.layers_of(self.model, self.plan)
        ]
        return sum(count * self._pricer.total_ns(block) for block, count in works)

    @functools.cached_property
    def fixed_ns(self) -> float:
        """Time that all attention calls of a rank share: an engine runs one kernel a layer for all its chunks."""
        if self.plan.kernels != "vllm" or self.model.latent is not None:
            return 0.0
        self.learn([(1, 1)])
        return FIXED_SHARE * self._attention[1, 1][0]

    def learn(self, calls: Iterable[Call]) -> None:
        """Price attention calls that are not priced yet."""
        fresh = list(dict.fromkeys(call for call in calls if call not in self._attention))
        counts = [(mixer, count) for layer, count in self.model.counts() for mixer in layer.cached]
        works = {
            (call, mixer): [
                mixer_work.kernel(mixer, self.plan, 1, *call, backend(self.cluster), decode=False),
                *mixer_work.scoring(mixer, 1, *call),
            ]
            for call in fresh
            for mixer, _ in counts
        }
        self._pricer.price([work for part in works.values() for work in part])
        for call in fresh:
            ns = sum(
                count * self._pricer.prices_by_work[work][0] for mixer, count in counts for work in works[call, mixer]
            )
            _, origin, width = self._pricer.prices_by_work[works[call, counts[0][0]][0]]
            self._attention[call] = ns, origin, width

    def attention_ns(self, calls: Iterable[Call]) -> float:
        """Time of attention calls that `learn` has priced, each as a kernel of its own."""
        return sum(self._attention[call][0] for call in calls)

    def linear_ns(self, tokens: Floats) -> Floats:
        """Time of what depends on a rank's tokens alone: projections, feed-forward, all-reduces."""
        return np.where(tokens > 0, np.interp(tokens, self._grid, self._linear_ns), 0.0)

    def projections_ns(self, tokens: Floats) -> Floats:
        """The part of it that belongs to the attention block."""
        return np.where(tokens > 0, np.interp(tokens, self._grid, self._block_ns), 0.0)

    def gather_ns(self, degree: int, tokens: Floats) -> Floats:
        """Time of the gathers of keys and values in the groups of ``degree`` ranks, by the tokens of their prompts.

        ``tokens`` has the groups in its last dimension, as the result has.
        """
        first, ns, _, _ = self._gathers[degree]
        return np.where(
            tokens > 0,
            np.array([np.interp(group_tokens, first, table) for group_tokens, table in zip(tokens.T, ns)]).T,
            0.0,
        )

    def _gather_table(self, degree: int) -> tuple[list[int], list[Floats], str, float]:
        """(tokens, times of all layers for each group of ranks, origin, uncertainty)."""
        tp = self.plan.tp
        places = [
            Group("sequence", tuple(rank * tp for rank in range(first, first + degree)), degree)
            for first in range(0, self.ranks, degree)
        ]
        architecture = self.cluster.gpu.architecture
        counts = [(mixer, count) for layer, count in self.model.counts() for mixer in layer.cached]
        layer_bytes = (
            sum(count * token_bytes(mixer, "bf16", architecture, tp) for mixer, count in counts) // self.model.layers
        )
        tokens = _grid(self._grid[-1] * degree)
        collectives = [
            Collective("all_gather", count * layer_bytes, "bfloat16", group_index)
            for group_index in range(len(places))
            for count in tokens
        ]
        prices, _ = self._pricer.chain.price_all(collectives, places, self.cluster)
        ns = np.array([price.duration_ns for price in prices], float).reshape(len(places), -1) * self.model.layers
        last = prices[-1]
        return tokens, list(ns), last.origin.name.lower(), last.uncertainty

    def rests_on(self, tokens: int, calls: Iterable[Call], degrees: Iterable[int], parts: Floats) -> Doubt:
        """What the time of a rank rests on, with ``parts`` ns of linear layers, attention and gathers."""
        grid_tokens = self._grid[int(np.searchsorted(self._grid, tokens).clip(0, len(self._grid) - 1))]
        works = [work for work, count in stage.stage(self.model, self.plan, grid_tokens) for _ in range(count)]
        shares_of, width = self._pricer.rests_on(works)
        origins: Counter[str] = Counter()
        for origin, share in shares_of.items():
            origins[origin] += share * parts[0]
        called = [self._attention[call] for call in calls]
        attended = sum(ns for ns, _, _ in called) or 1.0
        for ns, origin, _ in called:
            origins[origin] += ns / attended * parts[1]
        gathered = [self._gathers[degree] for degree in degrees]
        for _, _, origin, _ in gathered:
            origins[origin] += parts[2] / len(gathered)
        widths = np.array([
            width,
            sum(ns * width for ns, _, width in called) / attended,
            max((width for *_, width in gathered), default=0.0),
        ])  # fmt: skip
        total = float(parts.sum()) or 1.0
        spread = float(np.sqrt(((parts * widths) ** 2).sum())) / total
        return Doubt({origin: float(ns) / total for origin, ns in sorted(origins.items())}, spread)


@dataclasses.dataclass(frozen=True)
class Doubt:
    """Origins of a time, and how far off it may be."""

    origins: dict[str, float]  # share of the time by origin of its prices
    uncertainty: float  # relative half-width of the 80 % interval; errors of one kind of kernel are fully correlated


def _grid(longest: int) -> list[int]:
    """Sizes between which times are interpolated: powers of two and the sizes halfway between them."""
    powers = range(longest.bit_length() + 1)
    return sorted({size for power in powers for size in (1 << power, 3 << power)})
