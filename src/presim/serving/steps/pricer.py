"""Prices the work of an engine's layers with the chain that prices captured programs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from presim.cost.bounds import datasheet_ns
from presim.cost.chain import Chain
from presim.cost.collective_logs.bandwidth_bounds import least_seconds
from presim.cost.resource_demand import moved_bytes
from presim.hardware import Cluster
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps import routed_experts
from presim.serving.steps.overheads import Overheads, all_reduce_ns, product_ns
from presim.serving.steps.routed_experts import Routed
from presim.serving.steps.step_work import Reduce, Work
from presim.trace.schema import Group
from presim.trace.signatures import Collective, Gemm, Signature

_GROUPS = ("tp", "experts", "stages", "context")


@dataclasses.dataclass(frozen=True)
class PricedWork:
    """Work that has a price. Plans that differ in their limits alone share it, as limits change no price."""

    prices_by_work: dict[Work, tuple[float, str, float]] = dataclasses.field(default_factory=dict)
    bounds: dict[Work, str] = dataclasses.field(default_factory=dict)  # bottlenecks, as prices name them

    def without_collectives(self) -> PricedWork:
        """The prices that do not follow from a plan's ranks: plans of one GPU and engine share them."""
        kernels = [work for work in self.prices_by_work if not isinstance(work, Reduce)]
        return PricedWork(
            {work: self.prices_by_work[work] for work in kernels}, {work: self.bounds[work] for work in kernels}
        )


class Pricer:
    """Prices work once with the chain of estimators; all-reduces use the engines' kernels."""

    def __init__(
        self,
        cluster: Cluster,
        plan: ServingPlan,
        overheads: Overheads,
        prices: Sequence[Path] = (),
        priced: PricedWork | None = None,
    ) -> None:
        self.cluster, self.plan, self.overheads = cluster, plan, overheads
        self.chain = Chain.default(cluster, prices=prices)
        self.groups = [
            Group("tp", tuple(range(plan.tp)), plan.tp),
            Group("experts", tuple(range(plan.tp * plan.dp)), plan.tp * plan.dp),
            Group("stages", (0, plan.tp), 2),  # vLLM numbers the ranks of a stage one after the other
            Group("context", tuple(range(plan.dcp)), plan.dcp),
        ]
        priced = priced or PricedWork()
        self.prices_by_work, self.bounds = (
            priced.prices_by_work,
            priced.bounds,
        )  # the bottleneck of a collective: network

    def price(self, works: Sequence[Work]) -> None:
        """Price the work that is not priced yet."""
        fresh = list(dict.fromkeys(work for work in works if work not in self.prices_by_work))
        if not fresh:
            return
        plain = [work for work in fresh if not isinstance(work, Routed)]
        prices, _ = self.chain.price_all([self._signature(work) for work in plain], self.groups, self.cluster)
        for work, price in zip(plain, prices):
            ns, origin = float(price.duration_ns), price.origin.name.lower()
            if isinstance(work, Reduce):
                ranks = self.groups[_GROUPS.index(work.over)].size
                ns, origin = (0.0, origin) if ranks == 1 else self._reduce(work, ranks, ns, origin)
            ns = product_ns(self.cluster, work, self.plan, ns) if isinstance(work, Gemm) else ns
            self.prices_by_work[work] = ns, origin, price.uncertainty
            self.bounds[work] = "network" if isinstance(work, Reduce) else price.bound
        for routed in [work for work in fresh if isinstance(work, Routed)]:
            typed = dataclasses.replace(routed, weights=routed_experts.kind_of(routed.weights, self.cluster.gpu))
            ns, width = routed_experts.price(typed, self.cluster.gpu, self.plan.kernels)
            self.prices_by_work[routed] = ns, "learned", width
            self.bounds[routed] = routed_experts.bound(routed, self.cluster.gpu, self.plan.kernels)

    def least_ns(self, work: Work) -> float:
        """Time by the datasheet: arithmetic at its peak, or each operand once at the bandwidth of memory or links."""
        if isinstance(work, Routed):
            return routed_experts.least_ns(work, self.cluster.gpu)
        if isinstance(work, Reduce):
            group, collective = self.groups[_GROUPS.index(work.over)], self._signature(work)
            assert isinstance(collective, Collective)
            return least_seconds(collective, group.ranks, self.cluster) * 1e9 if group.size > 1 else 0.0
        moved_ns = moved_bytes(work) / self.cluster.gpu.memory_bytes_per_s * 1e9
        return max(datasheet_ns(work, self.cluster.gpu), moved_ns)

    def _signature(self, work: Signature | Reduce) -> Signature:
        """Work as the chain prices it."""
        if isinstance(work, Reduce):
            peer = 1 if work.kind == "send" else -1
            return Collective(work.kind, max(work.bytes, 1), "bfloat16", _GROUPS.index(work.over), peer)
        return work

    def _reduce(self, work: Reduce, ranks: int, nccl_ns: float, origin: str) -> tuple[float, str]:
        custom = all_reduce_ns(self.cluster, ranks, work.bytes) if work.kind == "all_reduce" else None
        return (nccl_ns, origin) if custom is None or nccl_ns < custom else (custom, "measured")

    def total_ns(self, works: Sequence[Work]) -> float:
        """Sum of kernel times, each followed by the gap of a CUDA graph, ns."""
        self.price(works)
        kernels = sum(not isinstance(work, Reduce) for work in works)
        return sum(self.prices_by_work[work][0] for work in works) + kernels * self.overheads.kernel_gap_us * 1e3

    def rests_on(self, works: Sequence[Work]) -> tuple[dict[str, float], float]:
        """(share of time by origin, relative uncertainty); errors within one kind of kernel are fully correlated."""
        self.price(works)
        by_origin: Counter[str] = Counter()
        squares: Counter[str] = Counter()
        for work in works:
            ns, origin, width = self.prices_by_work[work]
            by_origin[origin] += ns  # type: ignore[assignment]  # a Counter of times
            squares[type(work).__name__] += ns * width  # type: ignore[assignment]
        total = sum(by_origin.values()) or 1.0
        spread = float(np.sqrt(sum(float(value) ** 2 for value in squares.values()))) / total
        return {origin: float(ns) / total for origin, ns in sorted(by_origin.items())}, spread
