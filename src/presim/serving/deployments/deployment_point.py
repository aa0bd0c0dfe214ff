"""A deployment at one load: what the search estimates, simulations judge and launch files start."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.serving.answer.metrics import Slo
from presim.serving.engine_versions import EngineRelease
from presim.serving.steps.times import PricedEngine


@dataclasses.dataclass(frozen=True)
class DeploymentPoint:
    """One deployment and its steady state at one load."""

    engine: PricedEngine = dataclasses.field(repr=False, compare=False)
    batch: int  # requests in flight per engine
    replicas: int
    prefill_replicas: int  # 0: engines do both prefill and decode
    ttft_ms: float
    tpot_ms: float
    tokens_per_s: float  # all replicas together
    gpus: int
    output: int = 1  # tokens of a request, in the mean
    prefill: PricedEngine | None = dataclasses.field(default=None, repr=False, compare=False)  # of ``prefill_replicas``

    @property
    def e2el_ms(self) -> float:
        """From sending a request to its last token."""
        return self.ttft_ms + self.tpot_ms * max(self.output - 1, 0)

    @property
    def per_gpu(self) -> float:
        """Output tokens/s per GPU."""
        return self.tokens_per_s / self.gpus

    @property
    def per_user(self) -> float:
        """Output tokens/s of one request."""
        return 1e3 / self.tpot_ms

    @property
    def gpus_by_id(self) -> dict[str, int]:
        """Number of GPUs of each kind, by catalogue id."""
        gpus = {self.engine.cluster.gpu.id: self.engine.plan.gpus * self.replicas}
        if self.prefill_replicas:
            prefill = self.prefill or self.engine
            prefill_id = prefill.cluster.gpu.id
            gpus[prefill_id] = gpus.get(prefill_id, 0) + prefill.plan.gpus * self.prefill_replicas
        return gpus

    @property
    def name(self) -> str:
        """The deployment without its load."""
        plan, gpu, prefill = self.engine.plan, self.engine.cluster.gpu.id, self.prefill
        release = EngineRelease(plan.engine, plan.engine_version)
        engine = f"{release.text}, " if release != EngineRelease("vllm") else ""
        if not self.prefill_replicas:
            roles = f"{self.replicas} x {gpu} {engine}{plan.text}"
        elif prefill is None or (prefill.cluster.gpu.id == gpu and prefill.plan.tp == plan.tp):
            roles = f"{self._ratio} x {gpu} {engine}{plan.text}"
        elif prefill.cluster.gpu.id == gpu:
            roles = f"{self._ratio} x {gpu} {engine}prefill TP{prefill.plan.tp}, decode {plan.text}"
        else:
            prefill_words = f"prefill {prefill.cluster.gpu.id} TP{prefill.plan.tp}"
            roles = f"{self._ratio} x {engine}{prefill_words}, decode {gpu} {plan.text}"
        return f"{roles}, {plan.max_num_batched_tokens} tokens a step"

    @property
    def _ratio(self) -> str:
        return f"{self.prefill_replicas}P{self.replicas}D"

    @property
    def text(self) -> str:
        """Short description of the deployment and its load."""
        return f"{self.name}, {self.batch} in flight"


def excess(point: DeploymentPoint, slo: Slo) -> float:
    """The estimated latency furthest beyond its limit, as a multiple of the limit; 0 without an SLO."""
    values = {"ttft": point.ttft_ms, "tpot": point.tpot_ms, "e2el": point.e2el_ms}
    return max((values[name] / bound for name, bound in slo.bounds.items()), default=0.0)


def pareto(points: Sequence[DeploymentPoint]) -> tuple[DeploymentPoint, ...]:
    """Points on the Pareto front of tokens/s per GPU and tokens/s per user."""
    best = -1.0
    front = []
    for point in sorted(points, key=lambda candidate: (-candidate.per_user, -candidate.per_gpu)):
        if point.per_gpu > best:
            front.append(point)
            best = point.per_gpu
    return tuple(front)
