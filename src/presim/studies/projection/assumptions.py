"""A request completed with defaults, and the assumptions that a projection rests on."""

from __future__ import annotations

import math
from statistics import NormalDist

from presim.hardware import Gpu
from presim.hardware.power import shares
from presim.result import Result
from presim.result.training import Assumption
from presim.studies.projection.closed_form import best_interval, expected_s
from presim.studies.projection.reliability import load_reliability
from presim.studies.projection.simulation import TrainingRun
from presim.studies.projection.token_budget import ProjectionRequest
from presim.units import three_digits

_HOUR, _DAY = 3600.0, 86400.0
_STORAGE_BYTES_PER_S = 1e9  # per node; Llama 3: 2 TB/s sustained for about 2,000 nodes
_RESTART_S, _REPAIR_S = 600.0, _DAY
_CURVE = 41  # points of the curve of goodput over the interval


class Facts:
    """The request completed with defaults."""

    def __init__(self, result: Result, request: ProjectionRequest) -> None:
        self.result, self.request = result, request
        world = result.job.world_size
        report = load_reliability().named(request.failures)
        self.mtbf_s = (request.mtbf_hours or 1 / (report.per_gpu_hour * world)) * _HOUR
        rates = load_reliability().spread() if request.mtbf_hours is None else (1 / request.mtbf_hours / world,) * 2
        self.rates = rates
        self.state_bytes = state_bytes(result)
        per_node = self.state_bytes * min(result.job.gpus_per_node, world)
        self.checkpoint_s = request.checkpoint_s or max(per_node / _STORAGE_BYTES_PER_S, 1.0)
        self.restart_s = _RESTART_S if request.restart_s is None else request.restart_s
        self.best_s = best_interval(self.checkpoint_s, self.restart_s, self.mtbf_s)
        self.interval_s = request.interval_s or self.best_s
        self.jitter = slowest_of(world, request.jitter)
        self.steps = 0

    def job(self, step_s: float, steps: float) -> TrainingRun:
        """The job to simulate."""
        request, result = self.request, self.result
        self.steps = math.ceil(steps)
        replicas = result.throughput.data_parallel_ranks or 0
        return TrainingRun(
            work_s=self.steps * step_s,
            interval_s=self.interval_s,
            checkpoint_s=self.checkpoint_s,
            restart_s=self.restart_s,
            mtbf_s=self.mtbf_s,
            nodes=result.job.nodes,
            spares=request.spares or 0,
            repair_s=_REPAIR_S if request.repair_s is None else request.repair_s,
            hardware_share=0.0 if request.spares is None else load_reliability().hardware.share,
            replicas=replicas if request.elastic else 0,
        )

    def expected_days(self, job: TrainingRun) -> float:
        """Expected days by Daly's equation."""
        return expected_s(job.work_s, job.interval_s, job.checkpoint_s, job.restart_s, job.mtbf_s) / _DAY

    def bound(self, step_s: float, per_gpu_hour: float) -> float:
        """Expected days for an end of the step time's interval and a published failure rate, with the best interval."""
        mtbf_s = _HOUR / (per_gpu_hour * self.result.job.world_size)
        interval = self.request.interval_s or best_interval(self.checkpoint_s, self.restart_s, mtbf_s)
        work_s = self.steps * step_s * self.jitter
        return expected_s(work_s, interval, self.checkpoint_s, self.restart_s, mtbf_s) / _DAY

    def curve(self, job: TrainingRun) -> list[tuple[float, float]]:
        """Goodput over the interval in seconds, from a tenth to ten times the best interval."""
        points = []
        for index in range(_CURVE):
            interval = self.best_s * 10 ** (2 * index / (_CURVE - 1) - 1)
            slowdown = expected_s(1.0, interval, job.checkpoint_s, job.restart_s, job.mtbf_s)
            points.append((interval, 1 / slowdown))
        return points

    def assumptions(self, job: TrainingRun, gpu: Gpu) -> list[Assumption]:
        """Everything that is assumed rather than predicted."""
        request, report = self.request, load_reliability().named(self.request.failures)
        user_source = "given"
        by_state = (
            f"{self.state_bytes / 2**30:.1f} GiB of state per GPU at {_STORAGE_BYTES_PER_S / 1e9:g} GB/s per node"
        )
        storage = "2 TB/s sustained for about 2,000 nodes: The Llama 3 Herd of Models, section 3.3.1"
        rows = [
            ("time between failures", f"{three_digits(self.mtbf_s / _HOUR)} h", f"{report.text} ({report.source})"),
            ("checkpoint", f"{self.checkpoint_s:.3g} s", f"{by_state}; {storage}; training pauses for it"),
            ("restart", f"{self.restart_s:g} s", "default: detection, new processes, loading, warm-up"),
            ("power", f"{node_watts(self.result, gpu)[1]:.0f} W of node power per GPU", shares()["node"].source),
        ]
        overrides = {
            "time between failures": request.mtbf_hours,
            "checkpoint": request.checkpoint_s,
            "restart": request.restart_s,
        }
        assumptions = [
            Assumption(name, value, source if overrides.get(name) is None else user_source)
            for name, value, source in rows
        ]
        if request.spares is None:
            assumptions.append(Assumption("spare nodes", "always enough", "default; --spares limits them"))
        else:
            share = load_reliability().hardware
            origin = "default" if request.repair_s is None else user_source
            assumptions += [
                Assumption("repair of a node", f"{job.repair_s / _HOUR:.3g} h", origin),
                Assumption("failures that break a node", f"{share.share:.1%}", share.source),
            ]
        if request.jitter:
            law = f"the slowest of {self.result.job.world_size:,} normal draws; every step waits for it"
            assumptions.append(Assumption("jitter", f"steps take {self.jitter:.3f} times as long", law))
        return assumptions


def state_bytes(result: Result) -> int:
    """Bytes of a rank's parameters and optimizer state, the content of a checkpoint."""
    checkpointed = ("parameter", "optimizer_state", "buffer")
    return sum(category.bytes for category in result.memory.by_category if category.name in checkpointed)


def slowest_of(ranks: int, deviation: float) -> float:
    """Expected time of the slowest of several ranks, relative to a step without jitter.

    The expected maximum of n normal samples by Blom's approximation (Statistical Estimates and Transformed
    Beta-Variables, 1958).

    >>> round(slowest_of(1024, 0.01), 4), slowest_of(1, 0.5), slowest_of(1024, 0)
    (1.0323, 1.0, 1.0)
    """
    if ranks < 2 or not deviation:
        return 1.0
    return 1.0 + deviation * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def node_watts(result: Result, gpu: Gpu) -> tuple[float, float, float]:
    """Power per GPU of a node in watts: lowest, most likely, highest.

    The lowest is that of the GPUs alone. A result without energy counts as one of compute-bound kernels.
    """
    node, compute = shares()["node"], shares()["compute"]
    energy, limit = result.energy, gpu.power_w
    if energy is None:
        low, middle, high = (share * limit for share in (compute.low, compute.share, compute.high))
    else:
        low, middle, high = (
            energy.watts * part / energy.joules for part in (energy.joules_low, energy.joules, energy.joules_high)
        )
    return low + node.low * limit, middle + node.share * limit, high + node.high * limit
