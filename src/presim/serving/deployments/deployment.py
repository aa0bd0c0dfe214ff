"""A deployment: engines behind a router, with those that only prefill, and the fleet that stands for it."""

from __future__ import annotations

import dataclasses
from typing import Any

from presim.hardware import constants as calibration
from presim.serving.deployments.shared_kv import SharedKv, with_shared_kv
from presim.serving.deployments.transfers import kv_bytes_per_s
from presim.serving.engines.engine import Fleet, Life, Limits, Replica, Role, Router, StepTimes
from presim.serving.kept_bytes import model_token_bytes
from presim.serving.steps.times import PricedEngine

_DEVICE = (
    "token_ns",
    "shared_ns",
    "head_ns",
    "prefill_ns",
    "decode_ns",
    "lora_ns",
    "attention_fixed_ns",
)  # of `StepTimes`; the others are of the host


@dataclasses.dataclass(frozen=True)
class Deployment:
    """Engines behind a router."""

    engine: PricedEngine
    replicas: int = 1
    router: Router = "round-robin"
    prefill: PricedEngine | None = None  # prefill engines of a disaggregated deployment; `engine` then only decodes
    prefill_replicas: int = 0
    life: Life | None = None  # engines start, stop or fail; `replicas` is then the maximum
    shared_kv: SharedKv | None = None  # a pool of cached blocks for all engines

    @property
    def gpus(self) -> int:
        """GPUs of all engines."""
        prefill_gpus = self.prefill.plan.gpus * self.prefill_replicas if self.prefill else 0
        return self.engine.plan.gpus * self.replicas + prefill_gpus

    @property
    def gpu_ids(self) -> str:
        """GPUs of engines that prefill, where they are others, and of those that decode."""
        gpu_id = self.engine.cluster.gpu.id
        prefill_id = self.prefill.cluster.gpu.id if self.prefill else gpu_id
        return gpu_id if prefill_id == gpu_id else f"{prefill_id} and {gpu_id}"

    @property
    def power_w(self) -> float | None:
        """Power limit of a GPU, in the mean over all; None: that of some is not known."""
        own_gpus = self.engine.plan.gpus * self.replicas
        limits = [(self.engine.cluster.gpu.power_w, own_gpus)]
        if self.prefill is not None:
            limits.append((self.prefill.cluster.gpu.power_w, self.gpus - own_gpus))
        if not all(watts for watts, _ in limits):
            return None
        return sum(watts * gpus for watts, gpus in limits if watts) / self.gpus

    def fleet(self, scale: float = 1.0, host: float = 1.0, seed: int = 0, prefill: float = 1.0) -> Fleet:
        """The replicas, with scaled device times and host overhead. Each data-parallel rank is a replica.

        ``prefill``: further scale of device times of engines that prefill apart.
        """
        engine, over = self.engine, self.engine.overheads
        times = scale_times(engine.times, scale, host)
        limits = self._limits(engine)
        replicas = ranks_of(engine, self.replicas, times, "decode" if self.prefill else "any", 0, limits)
        if self.prefill is not None:
            first = scale_times(self.prefill.times, scale * prefill, host)
            limits = self._limits(self.prefill)
            prefill_replicas = self.prefill_replicas
            replicas = ranks_of(self.prefill, prefill_replicas, first, "prefill", self.replicas, limits) + replicas
        cluster, model, plan = engine.cluster, engine.model, engine.plan
        return Fleet(
            tuple(replicas), self.router, seed, round(over.input_us * 1e3 * host), round(over.output_us * 1e3 * host),
            kv_token_bytes=model_token_bytes(model, plan.cache, cluster.gpu.architecture),
            port_bytes_per_s=kv_bytes_per_s(engine, self.replicas, self.prefill, self.prefill_replicas),
            port_ns=cluster.fabric.latency_ns + (self._hand_over_ns(host) if self.prefill else 0), life=self.life,
            input_token_ns=round(over.input_token_us * 1e3 * host),
            input_load_ns=round(over.input_load_us * 1e3 * host), **self._pool(),
        )  # fmt: skip

    def _hand_over_ns(self, host: float) -> int:
        """Time between a prefill and a decode engine, beside the transfer; a calibration has it in its TTFT."""
        if self.engine.overheads.calibrated:
            return 0
        return round(calibration.value("serving.hand_over_us") * 1e3 * host)

    def _pool(self) -> dict[str, Any]:
        """The shared pool as the fleet has it."""
        if self.shared_kv is None:
            return {}
        engine = self.engine
        return {"pool_blocks": self.shared_kv.blocks(engine), "pool_block_ns": self.shared_kv.block_ns(engine)}

    def _limits(self, engine: PricedEngine) -> Limits:
        engines = self.replicas + self.prefill_replicas
        return engine.limits if self.shared_kv is None else with_shared_kv(engine, engines)


def ranks_of(
    engine: PricedEngine, count: int, times: StepTimes, role: Role, group: int, limits: Limits | None = None
) -> list[Replica]:
    """Replicas of ``count`` engines: one per data-parallel rank; ranks of one engine step together."""
    ranks, steps_alone = engine.plan.dp, engine.plan.dp == 1 or engine.plan.pp > 1
    return [
        Replica(limits or engine.limits, times, role, -1 if steps_alone else group + number)
        for number in range(count)
        for _ in range(ranks)
    ]


def scale_times(times: StepTimes, device: float, host: float) -> StepTimes:
    """The same steps, so many times as slow."""
    fields: dict[str, Any] = {field.name: getattr(times, field.name) for field in dataclasses.fields(times)}
    factors = {name: device if name in _DEVICE else host for name in fields}
    scaled_fields: dict[str, Any] = {
        name: value if value is None else value * factors[name] for name, value in fields.items()
    }
    return StepTimes(**scaled_fields)
