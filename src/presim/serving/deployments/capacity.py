"""The largest load that a deployment serves within an SLO, in steady state, by the compiled simulator.

Requests arrive at a rate, as with `presim serve --rate`. Those sent while the engines fill or drain are not judged, as
they meet an emptier server than the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from presim.serving.answer import metrics
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.workloads.workload import Workload, make

MOST_REQUESTS = 4000  # of a simulation
BLOCK = 64  # requests of a trace that are drawn together, so that bursts stay bursts: a round value
PRECISION = 0.02  # of the largest rate
JUDGED = 1000  # requests, beside those during which engines fill and drain
_STEPS = 200_000  # of decoding in a simulation, beyond which fewer requests are judged
_TOKENS = 10_000_000  # of output in a simulation, beyond which fewer requests are judged
_FEWEST = 200  # requests, however many steps they take
_FILLING = 2.0  # residence times until the load of a server that was empty is steady
IDLE = 0.1  # requests in flight, in the mean, at the lowest rate that is tried
_LOWER, _HIGHER = (0.75, 0.5, 0.25), 1.25  # of the first rate, while the largest is sought


@dataclasses.dataclass(frozen=True)
class Trial:
    """A deployment at one rate in steady state."""

    rate: float  # requests/s
    judged: int  # requests
    figures: dict[str, float]  # as `metrics.bench` names them
    meets: bool
    in_flight: float  # requests in all engines, in the mean
    excess: float  # the latency furthest beyond its limit, as a multiple of it; infinite without a steady state
    tokens: int = 0  # output tokens that were simulated: what it cost


@dataclasses.dataclass(frozen=True)
class OfferedLoad:
    """What a deployment is asked to serve: a workload that arrives at 1 request/s, and its SLO."""

    workload: Workload
    slo: Slo
    output: float  # tokens of a request, in the mean
    block: int = 1  # requests that are drawn together: more than one where what follows a request depends on it

    def redrawn(self, seed: int, count: int | None = None) -> OfferedLoad:
        """The load with requests drawn anew from its own, lengths and gaps between arrivals apart."""
        rng = np.random.default_rng((seed, 43))
        workload, total = self.workload, count or len(self.workload)
        gaps = np.diff(workload.arrival_ns, prepend=0)

        def indices() -> NDArray[np.int64]:
            size = min(self.block, len(workload))
            starts = rng.integers(0, len(workload) - size + 1, -(-total // size))
            return (starts[:, None] + np.arange(size)).ravel()[:total]

        arrival, lengths = np.cumsum(gaps[indices()]), indices()
        scale = total * 1e9 / max(float(arrival[-1]), 1.0)  # to 1 request/s
        times = (arrival * scale).astype(np.int64)
        shared = workload.segment_first[lengths + 1] - workload.segment_first[lengths]
        first = np.repeat(workload.segment_first[lengths] - np.cumsum(shared) + shared, shared)
        drawn = make(
            workload.name, times, workload.prompt[lengths], workload.output[lengths],
            segment_first=np.concatenate([[0], np.cumsum(shared)]).astype(np.int64),
            segments=workload.segments[first + np.arange(len(first))],
            segment_tokens=workload.segment_tokens, seed=seed,
        )  # fmt: skip
        return dataclasses.replace(self, workload=drawn)


def load_of(workload: Workload, slo: Slo, block: int = 1) -> OfferedLoad:
    """The load of a workload that arrives at 1 request/s."""
    return OfferedLoad(workload, slo, float(workload.output.mean()), block)


def trial(
    deployment: Deployment, load: OfferedLoad, rate: float, stay_s: float, *, device: float = 1.0, fewest: int = JUDGED
) -> Trial:
    """Simulate requests that arrive at ``rate``/s and stay for about ``stay_s`` s each.

    ``device``: how many times as long device work takes. ``fewest``: requests to judge where steps allow so many.
    """
    flying = rate * stay_s
    count = min(fewest + 3 * flying, _STEPS * max(flying, 1.0) / load.output, _TOKENS / load.output)
    count = round(min(max(count, 3 * flying + _FEWEST), MOST_REQUESTS))
    return judge(simulate(load.workload.first(count).scaled(rate), deployment.fleet(device)), load.slo, rate)


def judge(served: Served, slo: Slo, rate: float) -> Trial:
    """Figures of the requests that were sent while the engines neither filled nor drained."""
    tokens = int(served.workload.output.sum())
    if not served.finished.all():
        return Trial(rate, 0, {}, False, 0.0, np.inf, tokens)
    latencies = metrics.latencies_ms(served)
    stay_ns = float(np.median(latencies["e2el"])) * 1e6
    begin = served.sent.min() + _FILLING * stay_ns
    end = served.sent.max() - stay_ns
    steady = (served.sent >= begin) & (served.sent <= end)
    if not steady.any():
        return Trial(rate, 0, {}, False, 0.0, np.inf, tokens)
    values = {name: column[steady] for name, column in latencies.items()}
    flying = float(values["e2el"].mean()) * rate / 1e3
    limited = slo.figures_ms(values)
    excess = float(max((limited[name] / bound for name, bound in slo.bounds.items()), default=0.0))
    figures = {f"mean_{name}_ms": float(column.mean()) for name, column in values.items()}
    figures |= {f"p99_{name}_ms": float(np.percentile(column, 99)) for name, column in values.items()}
    figures |= {f"{slo.statistics[name]}_{name}_ms": figure for name, figure in limited.items()}
    return Trial(rate, int(steady.sum()), figures, excess <= 1, flying, excess, tokens)


def largest(
    run: Callable[[float], Trial], guess: float, lowest: float, least: float = 0.0, *, spacing: float = _HIGHER
) -> Trial:
    """The largest rate that meets the SLO, to 2 %; a trial that misses it if no rate from ``lowest`` on does.

    ``least``: the rate below which the answer is of no interest; a trial that misses at it is then returned.
    ``spacing``: between the first rates that are tried; less where the guess is good.
    """
    reached = run(least or guess)
    if reached.meets:
        step = spacing
        while reached.meets:
            low, reached = reached, run(reached.rate * step)
            step = min(step * step, _HIGHER)
        return _between(run, low, reached.rate)
    if least:
        return reached
    shares = _LOWER if spacing >= _HIGHER else (1 / spacing, *_LOWER)
    for rate in (*(share * guess for share in shares), lowest):
        high = reached.rate
        if lowest <= rate < high:
            reached = run(rate)
        if reached.meets:
            return _between(run, reached, high)
    return reached


def _between(run: Callable[[float], Trial], low: Trial, high: float) -> Trial:
    while high / low.rate > 1 + PRECISION:
        reached = run(float(np.sqrt(low.rate * high)))
        if reached.meets:
            low = reached
        else:
            high = reached.rate
    return low
