"""Fits what a deployment's own benchmark says: the scale of its steps, and the time before its first token.

The load of the benchmark is simulated again. The step scale is changed until mean TPOT is what was measured; then the
time before the queue until median TTFT is.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from presim.errors import InputError
from presim.files import write_file
from presim.serving.answer import metrics
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate import simulate
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.times import TABLES, Engine
from presim.serving.workloads.generate import Lengths, Recipe, generate
from presim.serving.workloads.workload import Workload, make

_ROUNDS = 12
_WIDEST = 8.0  # times as slow or as fast as predicted; more is another machine


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was found, and how the benchmark is met before and after."""

    overheads: Overheads
    before: dict[str, float]
    after: dict[str, float]
    measured: dict[str, float]


_MOST = 1e10  # tokens, requests, seconds or milliseconds


def read_result(path: Path) -> dict[str, Any]:
    """A JSON result of ``vllm bench serve --save-result``."""
    try:
        said = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); name a result of vllm bench serve") from error
    except ValueError as error:
        raise InputError(f"{path} is no JSON ({error}); name a result of vllm bench serve") from error
    if not isinstance(said, dict):
        raise InputError(f"{path} is no JSON object; name what `vllm bench serve --save-result` wrote")
    missing = [
        key for key in ("completed", "mean_tpot_ms", "total_input_tokens", "total_output_tokens") if not said.get(key)
    ]
    if missing:
        raise InputError(f"{path} has no {missing[0]}; name what `vllm bench serve --save-result` wrote")
    for key, value in said.items():
        if isinstance(value, int | float) and not abs(value) < _MOST and key != "request_rate":
            raise InputError(f"{path}: {key} is {value}, which no benchmark measures; name what vllm bench serve wrote")
    return said


def load_of(said: dict[str, Any]) -> Workload:
    """The load of a benchmark: its own lengths and times where they were saved, else their means."""
    count = int(said["completed"])
    concurrency = int(said.get("max_concurrency") or 0)
    rate = said.get("request_rate")
    if said.get("input_lens") and said.get("output_lens") and len(said["input_lens"]) == len(said["output_lens"]):
        starts = np.array(said.get("start_times") or np.zeros(len(said["input_lens"])))
        arrival = (
            ((starts - starts.min()) * 1e9).astype(np.int64) if not concurrency else np.zeros(len(starts), np.int64)
        )
        order = np.argsort(arrival, kind="stable")
        lengths = (np.maximum(np.array(said[key])[order], 1) for key in ("input_lens", "output_lens"))
        return dataclasses.replace(make("benchmark", arrival[order], *lengths), concurrency=concurrency)
    known = isinstance(rate, int | float) and np.isfinite(rate)
    prompt, output = (max(said[key] / count, 1.0) for key in ("total_input_tokens", "total_output_tokens"))
    recipe = Recipe(
        count, Lengths(prompt), Lengths(output), rate=float(rate) if known and rate else None,
        arrivals="gamma", burstiness=float(said.get("burstiness") or 1), concurrency=concurrency,
    )  # fmt: skip
    return generate(recipe)


def calibrate(engine: Engine, said: dict[str, Any]) -> Calibration:
    """The overheads with which the engine does as the benchmark says."""
    load = load_of(said)

    def run(overheads: Overheads) -> dict[str, float]:
        return metrics.bench(simulate(load, Deployment(_corrected(engine, overheads)).fleet()))

    before = run(engine.overheads)
    low, high = 1 / _WIDEST, _WIDEST
    for _ in range(_ROUNDS):
        middle = float(np.sqrt(low * high))
        slow = run(dataclasses.replace(engine.overheads, step_scale=engine.overheads.step_scale * middle))
        low, high = (low, middle) if slow["mean_tpot_ms"] > said["mean_tpot_ms"] else (middle, high)
    scale = float(np.sqrt(low * high))
    if not 1.1 / _WIDEST < scale < _WIDEST / 1.1:
        raise InputError(
            f"the benchmark's TPOT of {said['mean_tpot_ms']:.3g} ms is not within {_WIDEST:g} times of the predicted "
            f"{before['mean_tpot_ms']:.3g} ms: check that model, plan, GPU and load are those of the benchmark"
        )
    found = dataclasses.replace(
        engine.overheads, step_scale=engine.overheads.step_scale * scale, origin="a calibration by vllm bench serve"
    )
    if said.get("median_ttft_ms"):
        late = said["median_ttft_ms"] - run(found)["median_ttft_ms"]
        found = dataclasses.replace(found, input_us=max(found.input_us + 1e3 * late, 0.0))
    keys = ("mean_tpot_ms", "median_ttft_ms", "mean_ttft_ms", "output_throughput")
    after = run(found)
    measured = {key: float(said[key]) for key in keys if said.get(key)}
    begin, end = ({key: float(figures[key]) for key in keys} for figures in (before, after))
    return Calibration(found, begin, end, measured)


def _corrected(engine: Engine, overheads: Overheads) -> Engine:
    """The engine with another scale of its steps, and another time before the queue, without pricing its steps anew."""
    factor = overheads.step_scale / engine.overheads.step_scale
    scaled = {name: getattr(engine.times, name) * factor for name in TABLES}
    return dataclasses.replace(engine, overheads=overheads, times=dataclasses.replace(engine.times, **scaled))


def write(found: Calibration, path: Path) -> None:
    """As JSON, for ``presim serve --overheads``."""
    document = {"schema": "presim-serving-calibration/1", **dataclasses.asdict(found)}
    write_file(path, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())
