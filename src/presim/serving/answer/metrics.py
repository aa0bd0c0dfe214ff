"""Metrics of a run, with the names and definitions of ``vllm bench serve`` (vLLM 0.33, benchmarks/serve.py).

TTFT: from sending a request to its first token. TPOT: (latency - TTFT) / (output tokens - 1), for requests with at
least two. ITL: all gaps between consecutive tokens of all requests, pooled. E2EL: from sending to the last token.
AIPerf's `inter_token_latency` is this TPOT, not this ITL.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.engines.simulate_fleet import Served
from presim.serving.fast import serving_state

Floats = NDArray[np.float64]
PERCENTILES = (90.0, 99.0)
_KINDS = ("ttft", "tpot", "e2el")


@dataclasses.dataclass(frozen=True)
class Slo:
    """Latency limits in ms; a request within all limits is good. ``percentile``: the one that must meet them.

    ``levels``: limits of another percentile, or of the mean (None), by metric.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None
    percentile: float = 99.0
    levels: tuple[tuple[str, float | None], ...] = ()

    @property
    def bounds(self) -> dict[str, float]:
        """Limits that are set, by metric."""
        named = {"ttft": self.ttft_ms, "tpot": self.tpot_ms, "e2el": self.e2el_ms}
        return {name: bound for name, bound in named.items() if bound is not None}

    @property
    def statistics(self) -> dict[str, str]:
        """What must meet each limit: ``p99`` or ``mean``, by metric."""
        return {name: _statistic(dict(self.levels).get(name, self.percentile)) for name in self.bounds}

    @property
    def text(self) -> str:
        """In words."""
        return slo_text(self.bounds, self.statistics)

    def figures_ms(self, latencies: Mapping[str, Floats]) -> dict[str, float]:
        """The percentile or mean that each limit is of, by metric, of latencies in ms."""
        figures = {}
        for name in self.bounds:
            level = dict(self.levels).get(name, self.percentile)
            values = latencies[name]
            figures[name] = float(values.mean() if level is None else np.percentile(values, level))
        return figures


def _statistic(level: float | None) -> str:
    return "mean" if level is None else f"p{level:g}"


def slo_text(bounds: Mapping[str, float], statistics: Mapping[str, str]) -> str:
    """Latency limits by metric, in ms, in words."""
    return ", ".join(f"{statistics[name]} {name.upper()} <= {bound:g} ms" for name, bound in bounds.items())


def slo_of(words: Sequence[str], percentile: float = 99.0) -> Slo:
    """Parse an SLO from words such as ``ttft:500`` (ms), the format of ``vllm bench serve --goodput``.

    ``ttft:500@p90`` is of another percentile than ``percentile``, ``ttft:500@mean`` of the mean.

    Raises:
        InputError: a word is no SLO.
    """
    bounds: dict[str, float] = {}
    levels: dict[str, float | None] = {}
    for word in words:
        limit, has_level, level = word.partition("@")
        name, _, value = limit.partition(":")
        bounds[name] = _positive(value)
        if has_level and level != "mean":
            levels[name] = _positive(level.removeprefix("p")) if level.startswith("p") else math.inf
        elif has_level:
            levels[name] = None
        if name not in _KINDS or not bounds[name] < math.inf or not (levels.get(name) or 1.0) < 100:
            raise InputError(
                f"an SLO is ttft:MS, tpot:MS or e2el:MS, with @mean or a percentile such as @p99, not {word!r}; "
                "e.g. --slo ttft:500 --slo tpot:50@mean"
            )
    return Slo(bounds.get("ttft"), bounds.get("tpot"), bounds.get("e2el"), percentile, tuple(sorted(levels.items())))


def _positive(word: str) -> float:
    """A number above 0; infinity for anything else."""
    try:
        number = float(word)
    except ValueError:
        return math.inf
    return number if number > 0 else math.inf


def latencies_ms(served: Served) -> dict[str, Floats]:
    """TTFT, TPOT and E2EL of each finished request; TPOT is 0 for a single output token."""
    done = served.finished
    sent, first, last = (column[done] / 1e6 for column in (served.sent, served.first, served.last))
    later = np.maximum(served.workload.output[done] - 1, 0)
    tpot = np.divide(last - first, later, out=np.zeros(len(later)), where=later > 0)
    return {"ttft": first - sent, "tpot": tpot, "e2el": last - sent}


def itl_quantile_ms(served: Served, percent: float) -> float:
    """A percentile of the pooled ITL, from the histogram of gaps."""
    if not len(served.gaps):
        return 0.0
    order = np.argsort(served.gaps[:, 0], kind="stable")
    values, times = served.gaps[order, 0], served.gaps[order, 1]
    below = np.cumsum(times)
    position = percent / 100 * (below[-1] - 1)
    lower = values[np.searchsorted(below, np.floor(position), side="right")]
    upper = values[np.searchsorted(below, np.ceil(position), side="right")]
    return float(lower + (upper - lower) * (position - np.floor(position))) / 1e6


def good_requests(served: Served, slo: Slo) -> NDArray[np.bool_]:
    """Mask of finished requests that meet the SLO."""
    values = latencies_ms(served)
    is_good: NDArray[np.bool_] = np.ones(int(served.finished.sum()), bool)
    for name, bound in slo.bounds.items():
        is_good &= values[name] <= bound
    return is_good


def meets(served: Served, slo: Slo) -> bool:
    """Whether the SLO's percentiles of all requests meet the limits; refused requests count as misses."""
    if not slo.bounds or not served.finished.all():
        return not slo.bounds
    figures = slo.figures_ms(latencies_ms(served))
    return all(figures[name] <= bound for name, bound in slo.bounds.items())


def _spread(name: str, values: Floats) -> dict[str, float | None]:
    """Mean, median, deviation and percentiles; None without a value."""
    kinds = [*("mean", "median", "std"), *(f"p{percent:g}" for percent in PERCENTILES)]
    if not len(values):
        return {f"{kind}_{name}_ms": None for kind in kinds}
    figures = [values.mean(), np.median(values), values.std(), *np.percentile(values, PERCENTILES)]
    return {f"{kind}_{name}_ms": float(figure) for kind, figure in zip(kinds, figures, strict=True)}


def _itl(served: Served) -> dict[str, float]:
    values, times = served.gaps[:, 0] / 1e6, served.gaps[:, 1]
    count = max(int(times.sum()), 1)
    mean = float((values * times).sum() / count)
    spread = float(np.sqrt(max((values**2 * times).sum() / count - mean**2, 0.0)))
    figures = {"mean_itl_ms": mean, "median_itl_ms": itl_quantile_ms(served, 50), "std_itl_ms": spread}
    return figures | {f"p{percent:g}_itl_ms": itl_quantile_ms(served, percent) for percent in PERCENTILES}


def bench(served: Served, slo: Slo | None = None, *, per_request: bool = False) -> dict[str, Any]:
    """The JSON that ``vllm bench serve --save-result`` writes; ``per_request``: with lists of ``--save-detailed``."""
    done = served.finished
    values = latencies_ms(served)
    sent = served.sent[done]
    duration = float(served.last[done].max() - served.sent[served.sent >= 0].min()) / 1e9 if done.any() else 0.0
    tokens_in, tokens_out = (int(column[done].sum()) for column in (served.workload.prompt, served.workload.output))
    per_s = 1 / duration if duration > 0 else 0.0
    num_good = int(good_requests(served, slo).sum()) if slo is not None and slo.bounds else None
    figures: dict[str, Any] = {
        "duration": duration,
        "completed": int(done.sum()),
        "failed": int((~done).sum()),
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "request_throughput": int(done.sum()) * per_s,
        "request_goodput": None if num_good is None else num_good * per_s,
        "output_throughput": tokens_out * per_s,
        "total_token_throughput": (tokens_in + tokens_out) * per_s,
        "max_concurrent_requests": _most_at_once(sent, served.last[done]),
    }
    several = served.workload.output[done] > 1
    figures |= _spread("ttft", values["ttft"]) | _spread("tpot", values["tpot"][several]) | _itl(served)
    figures |= _spread("e2el", values["e2el"])
    if per_request:
        figures |= {
            "input_lens": served.workload.prompt[done].tolist(),
            "output_lens": served.workload.output[done].tolist(),
            "start_times": (sent / 1e9).tolist(),
            "ttfts": (values["ttft"] / 1e3).tolist(),
            "latencies": (values["e2el"] / 1e3).tolist(),
        }
    return figures


def _most_at_once(begins: NDArray[np.int64], end_times: NDArray[np.int64]) -> int:
    if not len(begins):
        return 0
    times = np.concatenate([begins, end_times])
    order = np.lexsort((np.repeat([1, 0], len(begins)), times))
    return int(np.cumsum(np.repeat([1, -1], len(begins))[order]).max())


def engine_figures(served: Served, blocks: int) -> dict[str, Any]:
    """Metrics inside the engines: batches, KV use, queue, preemptions, cache hits, and time by kind of step."""
    steps = served.steps
    if not len(steps):
        return {"steps": 0}
    took = (steps[:, serving_state.LOG_END] - steps[:, serving_state.LOG_START]).astype(float)
    span = max(float(steps[:, serving_state.LOG_END].max() - steps[:, serving_state.LOG_CHOSEN].min()), 1.0)
    replicas = len(np.unique(steps[:, serving_state.LOG_REPLICA]))
    prompts = int(served.workload.prompt[served.scheduled >= 0].sum())
    mixed = steps[:, serving_state.LOG_PREFILL] > 0
    figures: dict[str, Any] = {}
    if served.demoted or served.stored or served.host_hits.any() or served.disk_hits.any():
        hits = {"gpu": served.hits, "host": served.host_hits, "disk": served.disk_hits, "shared": served.shared_hits}
        figures["tiers"] = {
            **{f"{name}_hit_tokens": int(column.sum()) for name, column in hits.items()},
            **{f"{name}_hit_rate": float(column.sum() / prompts) if prompts else 0.0 for name, column in hits.items()},
            "blocks_given_up_by_gpus": served.demoted,
            "blocks_lost": served.dropped,
            "blocks_stored": served.stored,
        }
    return figures | {
        "steps": len(steps),
        "device_busy": float(took.sum() / span / replicas),
        "time_in_steps_with_prefill": float(took[mixed].sum() / took.sum()) if took.sum() else 0.0,
        "mean_batch": float(np.average(steps[:, serving_state.LOG_SEQS], weights=np.maximum(took, 1))),
        "max_batch": int(steps[:, serving_state.LOG_SEQS].max()),
        "mean_kv_use": float(
            np.average(steps[:, serving_state.LOG_USED], weights=np.maximum(took, 1)) / max(blocks, 1)
        ),
        "max_kv_use": float(steps[:, serving_state.LOG_USED].max() / max(blocks, 1)),
        "max_waiting": int(steps[:, serving_state.LOG_WAITING].max()),
        "preemptions": int(served.preemptions.sum()),
        "prefix_cache_hit_rate": float(served.hits.sum() / prompts) if prompts else 0.0,
    }
