"""Projects a step to a whole training: days, goodput, energy and cost, with all assumptions."""

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
from presim.training.reliability import known
from presim.training.simulation import Job, NeverEndsError, Spent, train
from presim.units import three_digits

_HOUR, _DAY = 3600.0, 86400.0
_STORAGE_BYTES_PER_S = 1e9  # of a node; Llama 3: 2 TB/s sustained for about 2,000 nodes
_RESTART_S, _REPAIR_S = 600.0, _DAY
_LONGEST = 100.0  # times the work alone: a training that takes longer does not end
_CURVE = 41  # points of the goodput over the interval


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What is trained for how long, and how the cluster behaves; None: a default that the answer names."""

    tokens: float
    price_per_gpu_hour: float | None = None
    price_per_kwh: float | None = None
    failures: str = "llama3"  # the report whose rate counts
    mtbf_hours: float | None = None  # of the whole cluster, instead
    checkpoint_s: float | None = None  # training stands still for one; None: state over the storage's bandwidth
    interval_s: float | None = None  # of work between checkpoints; None: the best
    restart_s: float | None = None
    repair_s: float | None = None
    spares: int | None = None  # nodes; None: always enough
    elastic: bool = False  # go on without the replicas that miss a node
    jitter: float = 0.0  # relative standard deviation of a rank's step, independent between ranks and steps
    runs: int = 200
    seed: int = 0


def project(result: Result, request: Request, gpu: Gpu) -> Projection:
    """A training of a token budget on the cluster of a result.

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
    """Power of a node for each of its GPUs: the lowest, the likeliest, the highest.

    The lowest is that of the GPUs alone. A result that holds no energy is taken for one of compute-bound kernels.
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
    "jobs of 1,024 GPUs, and its rate gives 28.8 h (arXiv 2410.21680).",
    "Nodes that come back from repair join at the next restart.",
    "Evaluation, data loading that falls behind, loss spikes that are rolled back, and queues are left out.",
]


def check(request: Request) -> None:
    """Raise where a figure cannot be.

    Raises:
        InputError: a figure that must be positive is not.
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
        raise InputError(f"at least one training is simulated; got runs = {request.runs}")


def _steady(result: Result) -> tuple[float, float]:
    """Seconds of a step, and tokens per second."""
    step_s, tokens_per_s = result.step_time_s, result.throughput.tokens_per_s
    if step_s is None or not result.steps.count:
        raise InputError("the job has no optimizer step to repeat; capture one that trains")
    if not tokens_per_s:
        raise InputError("the job's tokens per step are not known, so no token budget can be divided by them")
    return step_s, tokens_per_s


def _check_end(job: Job) -> None:
    """Raise where failures leave next to no progress."""
    whole_s = expected_s(job.work_s, job.interval_s, job.checkpoint_s, job.restart_s, job.mtbf_s)
    if whole_s > _LONGEST * job.work_s:
        raise _endless(job)


def _train(job: Job, seed: int) -> Spent:
    try:
        return train(job, seed)
    except NeverEndsError as error:
        raise _endless(job) from error


def _endless(job: Job) -> InputError:
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
    """The request completed by defaults."""

    def __init__(self, result: Result, request: Request) -> None:
        self.result, self.request = result, request
        world = result.job.world_size
        report = known().named(request.failures)
        self.mtbf_s = (request.mtbf_hours or 1 / (report.per_gpu_hour * world)) * _HOUR
        rates = known().spread() if request.mtbf_hours is None else (1 / request.mtbf_hours / world,) * 2
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
        """What is simulated."""
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
            hardware_share=0.0 if request.spares is None else known().hardware.share,
            replicas=replicas if request.elastic else 0,
        )

    def expected_days(self, job: Job) -> float:
        """By Daly's equation."""
        return expected_s(job.work_s, job.interval_s, job.checkpoint_s, job.restart_s, job.mtbf_s) / _DAY

    def bound(self, step_s: float, per_gpu_hour: float) -> float:
        """Expected days at an end of the step's interval and of published rates, with the best interval there."""
        mtbf_s = _HOUR / (per_gpu_hour * self.result.job.world_size)
        interval = self.request.interval_s or best_interval(self.checkpoint_s, self.restart_s, mtbf_s)
        work_s = self.steps * step_s * self.jitter
        return expected_s(work_s, interval, self.checkpoint_s, self.restart_s, mtbf_s) / _DAY

    def curve(self, job: Job) -> list[tuple[float, float]]:
        """Goodput over the interval, from a tenth to ten times the best."""
        points = []
        for place in range(_CURVE):
            interval = self.best_s * 10 ** (2 * place / (_CURVE - 1) - 1)
            whole = expected_s(1.0, interval, job.checkpoint_s, job.restart_s, job.mtbf_s)
            points.append((interval, 1 / whole))
        return points

    def assumptions(self, job: Job, gpu: Gpu) -> list[Assumption]:
        """What was not predicted."""
        request, report = self.request, known().named(self.request.failures)
        given = "given"
        by_state = f"{self.state_bytes / 2**30:.1f} GiB of state a GPU at {_STORAGE_BYTES_PER_S / 1e9:g} GB/s a node"
        storage = "2 TB/s sustained for about 2,000 nodes: The Llama 3 Herd of Models, section 3.3.1"
        rows = [
            ("time between failures", f"{three_digits(self.mtbf_s / _HOUR)} h", f"{report.text} ({report.source})"),
            ("checkpoint", f"{self.checkpoint_s:.3g} s", f"{by_state}; {storage}; training stands still for it"),
            ("restart", f"{self.restart_s:g} s", "a default: detection, new processes, loading, warm-up"),
            ("power", f"{_watts(self.result, gpu)[1]:.0f} W of node a GPU", shares()["node"].source),
        ]
        said = {
            "time between failures": request.mtbf_hours,
            "checkpoint": request.checkpoint_s,
            "restart": request.restart_s,
        }
        found = [Assumption(name, value, source if said.get(name) is None else given) for name, value, source in rows]
        if request.spares is None:
            found.append(Assumption("spare nodes", "always enough", "a default; --spares limits them"))
        else:
            share = known().hardware
            origin = "a default" if request.repair_s is None else given
            found += [
                Assumption("repair of a node", f"{job.repair_s / _HOUR:.3g} h", origin),
                Assumption("failures that break a node", f"{share.share:.1%}", share.source),
            ]
        if request.jitter:
            law = f"the slowest of {self.result.job.world_size:,} normal draws; every step waits for it"
            found.append(Assumption("jitter", f"steps take {self.jitter:.3f} times as long", law))
        return found


def state_bytes(result: Result) -> int:
    """Bytes of a rank's parameters and optimizer state, which a checkpoint holds."""
    kept = ("parameter", "optimizer_state", "buffer")
    return sum(held.bytes for held in result.memory.by_category if held.name in kept)


def slowest_of(ranks: int, deviation: float) -> float:
    """How long the slowest of several ranks takes, in steps without jitter.

    The expected largest of n normal draws by Blom's approximation (Statistical Estimates and Transformed
    Beta-Variables, 1958).

    >>> round(slowest_of(1024, 0.01), 4), slowest_of(1, 0.5), slowest_of(1024, 0)
    (1.0323, 1.0, 1.0)
    """
    if ranks < 2 or not deviation:
        return 1.0
    return 1.0 + deviation * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
