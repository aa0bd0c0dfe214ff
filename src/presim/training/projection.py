"""Project a step to a whole training run: days, goodput, energy and cost, with all assumptions."""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist

from presim.errors import InputError
from presim.figures.training import SCHEMA_VERSION, Assumption, Projection, Spread
from presim.hardware import Gpu
from presim.hardware.power import shares
from presim.result import Result
from presim.training.closed_form import best_interval, daly_interval, expected_s, young_interval
from presim.training.reliability import load_reliability
from presim.training.simulation import Job, NeverEndsError, Spent, train
from presim.units import three_digits

_HOUR, _DAY = 3600.0, 86400.0
_STORAGE_BYTES_PER_S = 1e9  # per node; Llama 3: 2 TB/s sustained for about 2,000 nodes
_RESTART_S, _REPAIR_S = 600.0, _DAY
_ENDLESS_FACTOR = 100.0  # multiple of the work at which a run counts as endless
_CURVE = 41  # points of the curve of goodput over the interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The token budget and the cluster's reliability; None: a default that the result names."""

    tokens: float
    price_per_gpu_hour: float | None = None
    price_per_kwh: float | None = None
    failures: str = "llama3"  # name of the report with the failure rate
    mtbf_hours: float | None = None  # of the whole cluster; overrides the report
    checkpoint_s: float | None = None  # training pauses for it; None: state size over storage bandwidth
    interval_s: float | None = None  # work between checkpoints; None: the best interval
    restart_s: float | None = None
    repair_s: float | None = None
    spares: int | None = None  # nodes; None: always enough
    elastic: bool = False  # continue without the replicas that miss a node
    jitter: float = 0.0  # relative standard deviation of a rank's step time, independent between ranks and steps
    runs: int = 200
    seed: int = 0


def project(result: Result, request: Request, gpu: Gpu) -> Projection:
    """Project a training run with a token budget on the cluster of a result.

    Raises:
        InputError: the result has no step or no tokens, or the training would not end.
    """
    step_s, tokens_per_s = _steady(result)
    check(request)
    facts = _Facts(result, request)
    job = facts.job(step_s * facts.jitter, request.tokens / (tokens_per_s * step_s))
    _check_end(job)
    runs = [_train(job, request.seed * 1_000_003 + number) for number in range(request.runs)]
    mean = {name: sum(_parts(run)[name] for run in runs) / len(runs) / _DAY for name in _parts(runs[0])}
    total_days = [run.total_s / _DAY for run in runs]
    days = _spread(total_days)
    hours = result.job.world_size * days.mean * 24
    watts = _watts(result, gpu)
    spare_gpus = (request.spares or 0) * result.job.gpus_per_node
    price, kwh_price = request.price_per_gpu_hour, request.price_per_kwh
    low, energy, high = (each * hours / 1e6 for each in watts)
    return Projection(
        schema_version=SCHEMA_VERSION,
        script=result.job.script,
        cluster=f"{result.job.nodes} x {result.job.gpus_per_node} {result.job.gpu_name}",
        gpus=result.job.world_size,
        step_time_s=step_s * facts.jitter,
        steps=facts.steps,
        tokens=request.tokens,
        work_days=job.work_s / _DAY,
        days=days,
        days_low=facts.bound(result.step_time_low_s or step_s, facts.rates[0]),
        days_high=facts.bound(result.step_time_high_s or step_s, facts.rates[1]),
        goodput=job.work_s / _DAY / days.mean,
        spent_days=mean,
        failures=sum(run.failures for run in runs) / len(runs),
        mtbf_hours=job.mtbf_s / _HOUR,
        interval_s=job.interval_s,
        best_interval_s=facts.best_s,
        young_interval_s=young_interval(facts.checkpoint_s, job.mtbf_s),
        daly_interval_s=daly_interval(facts.checkpoint_s, job.mtbf_s),
        closed_form_days=facts.expected_days(job),
        curve=facts.curve(job),
        gpu_hours=hours,
        money=None if price is None else price * hours * (1 + spare_gpus / result.job.world_size),
        energy_MWh=energy,
        energy_low_MWh=low,
        energy_high_MWh=high,
        energy_money=None if kwh_price is None else energy * 1e3 * kwh_price,
        assumptions=facts.assumptions(job, gpu),
        not_modelled=_NOT_MODELLED,
    )


def _watts(result: Result, gpu: Gpu) -> tuple[float, float, float]:
    """Power per GPU of a node in watts: lowest, most likely, highest.

    The lowest is that of the GPUs alone. A result without energy counts as one of compute-bound kernels.
    """
    node, compute = shares()["node"], shares()["compute"]
    found, limit = result.energy, gpu.power_w
    if found is None:
        low, middle, high = (share * limit for share in (compute.low, compute.share, compute.high))
    else:
        low, middle, high = (
            found.watts * part / found.joules for part in (found.joules_low, found.joules, found.joules_high)
        )
    return low + node.low * limit, middle + node.share * limit, high + node.high * limit


_NOT_MODELLED = [
    "Failures are independent of each other and of time; bad nodes that fail again and again are not.",
    "Jobs of about 1,000 GPUs fail more often than these rates say: on RSC-1 Meta measured 7.9 h between failures of "
    "jobs of 1,024 GPUs, but its rate gives 28.8 h (arXiv 2410.21680).",
    "Nodes that come back from repair join at the next restart.",
    "Evaluation, slow data loading, rollbacks after loss spikes, and queues are left out.",
]


def check(request: Request) -> None:
    """Check the ranges of the request's numbers.

    Raises:
        InputError: a number is out of range.
    """
    for name in ("tokens", "price_per_gpu_hour", "price_per_kwh", "mtbf_hours", "checkpoint_s", "interval_s"):
        value = getattr(request, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{name.replace('_', ' ')} = {value:g} must be a positive number; correct it")
    for name in ("restart_s", "repair_s", "spares", "jitter"):
        value = getattr(request, name)
        if value is not None and not 0 <= value < math.inf:
            raise InputError(f"{name.replace('_', ' ')} = {value:g} must not be negative; correct it")
    if request.runs < 1:
        raise InputError(f"runs = {request.runs} must be at least 1; correct it")


def _steady(result: Result) -> tuple[float, float]:
    """Step time in seconds, and tokens per second."""
    step_s, tokens_per_s = result.step_time_s, result.throughput.tokens_per_s
    if step_s is None or not result.steps.count:
        raise InputError("the job has no optimizer step to repeat; capture a training job")
    if not tokens_per_s:
        raise InputError(
            "the job's tokens per step are unknown, so a token budget gives no number of steps; "
            "capture a job with token input"
        )
    return step_s, tokens_per_s


def _check_end(job: Job) -> None:
    """Raise if failures leave almost no progress."""
    whole_s = expected_s(job.work_s, job.interval_s, job.checkpoint_s, job.restart_s, job.mtbf_s)
    if whole_s > _ENDLESS_FACTOR * job.work_s:
        raise _endless_error(job)


def _train(job: Job, seed: int) -> Spent:
    try:
        return train(job, seed)
    except NeverEndsError as error:
        raise _endless_error(job) from error


def _endless_error(job: Job) -> InputError:
    return InputError(
        f"with a failure every {job.mtbf_s / 60:.1f} minutes, restarts of {job.restart_s:g} s and checkpoints of "
        f"{job.checkpoint_s:g} s the training does not end; write checkpoints faster or restart faster"
    )


def _parts(spent: Spent) -> dict[str, float]:
    return {
        "work": spent.work_s,
        "checkpoints": spent.checkpoints_s,
        "lost work": spent.lost_s,
        "restarts": spent.restarts_s,
        "waiting for repairs": spent.waiting_s,
        "missing replicas": spent.slower_s,
    }


def _spread(values: list[float]) -> Spread:
    ordered = sorted(values)

    def quantile(share: float) -> float:
        place = share * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)

    return Spread(math.fsum(values) / len(values), quantile(0.1), quantile(0.5), quantile(0.9))


class _Facts:
    """The request completed with defaults."""

    def __init__(self, result: Result, request: Request) -> None:
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

    def job(self, step_s: float, steps: float) -> Job:
        """The job to simulate."""
        request, result = self.request, self.result
        self.steps = math.ceil(steps)
        replicas = result.throughput.data_parallel_ranks or 0
        return Job(
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

    def expected_days(self, job: Job) -> float:
        """Expected days by Daly's equation."""
        return expected_s(job.work_s, job.interval_s, job.checkpoint_s, job.restart_s, job.mtbf_s) / _DAY

    def bound(self, step_s: float, per_gpu_hour: float) -> float:
        """Expected days for an end of the step time's interval and a published failure rate, with the best interval."""
        mtbf_s = _HOUR / (per_gpu_hour * self.result.job.world_size)
        interval = self.request.interval_s or best_interval(self.checkpoint_s, self.restart_s, mtbf_s)
        work_s = self.steps * step_s * self.jitter
        return expected_s(work_s, interval, self.checkpoint_s, self.restart_s, mtbf_s) / _DAY

    def curve(self, job: Job) -> list[tuple[float, float]]:
        """Goodput over the interval in seconds, from a tenth to ten times the best interval."""
        points = []
        for place in range(_CURVE):
            interval = self.best_s * 10 ** (2 * place / (_CURVE - 1) - 1)
            whole = expected_s(1.0, interval, job.checkpoint_s, job.restart_s, job.mtbf_s)
            points.append((interval, 1 / whole))
        return points

    def assumptions(self, job: Job, gpu: Gpu) -> list[Assumption]:
        """Everything that is assumed rather than predicted."""
        request, report = self.request, load_reliability().named(self.request.failures)
        given = "given"
        by_state = (
            f"{self.state_bytes / 2**30:.1f} GiB of state per GPU at {_STORAGE_BYTES_PER_S / 1e9:g} GB/s per node"
        )
        storage = "2 TB/s sustained for about 2,000 nodes: The Llama 3 Herd of Models, section 3.3.1"
        rows = [
            ("time between failures", f"{three_digits(self.mtbf_s / _HOUR)} h", f"{report.text} ({report.source})"),
            ("checkpoint", f"{self.checkpoint_s:.3g} s", f"{by_state}; {storage}; training pauses for it"),
            ("restart", f"{self.restart_s:g} s", "default: detection, new processes, loading, warm-up"),
            ("power", f"{_watts(self.result, gpu)[1]:.0f} W of node power per GPU", shares()["node"].source),
        ]
        overrides = {
            "time between failures": request.mtbf_hours,
            "checkpoint": request.checkpoint_s,
            "restart": request.restart_s,
        }
        found = [
            Assumption(name, value, source if overrides.get(name) is None else given) for name, value, source in rows
        ]
        if request.spares is None:
            found.append(Assumption("spare nodes", "always enough", "default; --spares limits them"))
        else:
            share = load_reliability().hardware
            origin = "default" if request.repair_s is None else given
            found += [
                Assumption("repair of a node", f"{job.repair_s / _HOUR:.3g} h", origin),
                Assumption("failures that break a node", f"{share.share:.1%}", share.source),
            ]
        if request.jitter:
            law = f"the slowest of {self.result.job.world_size:,} normal draws; every step waits for it"
            found.append(Assumption("jitter", f"steps take {self.jitter:.3f} times as long", law))
        return found


def state_bytes(result: Result) -> int:
    """Bytes of a rank's parameters and optimizer state, the content of a checkpoint."""
    kept = ("parameter", "optimizer_state", "buffer")
    return sum(held.bytes for held in result.memory.by_category if held.name in kept)


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
