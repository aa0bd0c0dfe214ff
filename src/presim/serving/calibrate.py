"""Fit a deployment's own benchmark: the scale of its step times, and the time before the first token.

The benchmark's load is simulated again. First the step scale is fitted to the measured mean TPOT, then the time before
the queue to the median TTFT.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from presim.errors import InputError
from presim.serving.answer import metrics
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate_fleet import simulate
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.times import TABLES, PricedEngine
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from presim.serving.workloads.workload import Workload, make
from presim.system.files import FormatError, decode_foreign_json, read_bytes, shortened, write_file
from presim.units import quantities

SCHEMA = "presim-serving-calibration/1"
_SHOWN = ("mean_tpot_ms", "median_ttft_ms", "mean_ttft_ms", "output_throughput")
_ROUNDS = 12
_WIDEST = 8.0  # largest accepted factor between measured and predicted TPOT; beyond it, the setups differ


@dataclasses.dataclass(frozen=True)
class ServingCalibration:
    """The fitted overheads, and the metrics before and after the fit."""

    overheads: Overheads
    before: dict[str, float]
    after: dict[str, float]
    measured: dict[str, float]


_ADVICE = "give a file that `vllm bench serve --save-result` wrote"
_MOST = 1e10  # tokens, requests, seconds or milliseconds


def read_result(path: Path) -> dict[str, Any]:
    """A JSON result of ``vllm bench serve --save-result``."""
    try:
        result = decode_foreign_json(read_bytes(path, "give a result of vllm bench serve"))
    except FormatError as error:
        raise InputError(f"{path} is not valid JSON ({error}); give a result of vllm bench serve") from error
    if not isinstance(result, dict):
        raise InputError(f"{path} is not a JSON object; give a file that `vllm bench serve --save-result` wrote")
    missing = [
        key for key in ("completed", "mean_tpot_ms", "total_input_tokens", "total_output_tokens") if not result.get(key)
    ]
    if missing:
        raise InputError(f"{path} has no {missing[0]}; give a file that `vllm bench serve --save-result` wrote")
    for key in ("completed", "total_input_tokens", "total_output_tokens", "max_concurrency"):
        if not _is_number(result.get(key) or 0, is_whole=True):
            raise InputError(f"{path}: {key} is {shortened(result[key])}, not a whole number; {_ADVICE}")
    for key in ("mean_tpot_ms", "median_ttft_ms", "mean_ttft_ms", "output_throughput", "burstiness"):
        if not _is_number(result.get(key) or 0):
            raise InputError(f"{path}: {key} is {shortened(result[key])}, not a number; {_ADVICE}")
    for key, is_whole in (("input_lens", True), ("output_lens", True), ("start_times", False)):
        values = result.get(key) or []
        if not isinstance(values, list) or not all(_is_number(value, is_whole=is_whole) for value in values):
            raise InputError(f"{path}: {key} is not a list of {'whole ' * is_whole}numbers; {_ADVICE}")
    for key, value in result.items():
        if isinstance(value, int | float) and not abs(value) < _MOST and key != "request_rate":
            raise InputError(
                f"{path}: {key} is {value}, which no benchmark can measure; give a file that vllm bench serve wrote"
            )
    return result


def _is_number(value: object, *, is_whole: bool = False) -> bool:
    """Whether a value is a possible quantity; true and text are none."""
    return type(value) in ((int,) if is_whole else (int, float)) and 0 <= value < _MOST  # type: ignore[operator]


def load_of(result: dict[str, Any]) -> Workload:
    """The load of a benchmark, from saved lengths and times if present, else from their means."""
    count = int(result["completed"])
    quantities.BENCHMARK_REQUESTS.check(count, "completed")
    concurrency = int(result.get("max_concurrency") or 0)
    rate = result.get("request_rate")
    if (
        result.get("input_lens")
        and result.get("output_lens")
        and len(result["input_lens"]) == len(result["output_lens"])
    ):
        starts = np.array(result.get("start_times") or np.zeros(len(result["input_lens"])))
        arrival = (
            ((starts - starts.min()) * 1e9).astype(np.int64) if not concurrency else np.zeros(len(starts), np.int64)
        )
        order = np.argsort(arrival, kind="stable")
        lengths = (np.maximum(np.array(result[key])[order], 1) for key in ("input_lens", "output_lens"))
        return dataclasses.replace(make("benchmark", arrival[order], *lengths), concurrency=concurrency)
    has_rate = isinstance(rate, int | float) and np.isfinite(rate)
    prompt, output = (max(result[key] / count, 1.0) for key in ("total_input_tokens", "total_output_tokens"))
    recipe = WorkloadRecipe(
        count, Lengths(prompt), Lengths(output), rate=float(rate) if has_rate and rate else None,
        arrivals="gamma", burstiness=float(result.get("burstiness") or 1), concurrency=concurrency,
    )  # fmt: skip
    return generate(recipe)


def calibrate(deployment: Deployment, result: dict[str, Any]) -> ServingCalibration:
    """Fit overheads so that the simulated engines match the benchmark."""
    load, engine, prefill = load_of(result), deployment.engine, deployment.prefill

    def run(overheads: Overheads) -> dict[str, float]:
        prefill_corrected = _corrected(prefill, overheads) if prefill is not None else None
        corrected = dataclasses.replace(deployment, engine=_corrected(engine, overheads), prefill=prefill_corrected)
        return metrics.bench(simulate(load, corrected.fleet()))

    before = run(engine.overheads)
    if before["mean_tpot_ms"] is None:
        raise InputError(
            f"the simulated engine serves none of the benchmark's {len(load)} requests, or one token each: check that "
            "--max-model-len and the plan are the benchmark's"
        )
    low, high = 1 / _WIDEST, _WIDEST
    for _ in range(_ROUNDS):
        middle = float(np.sqrt(low * high))
        slow = run(dataclasses.replace(engine.overheads, step_scale=engine.overheads.step_scale * middle))
        low, high = (low, middle) if slow["mean_tpot_ms"] > result["mean_tpot_ms"] else (middle, high)
    scale = float(np.sqrt(low * high))
    if not 1.1 / _WIDEST < scale < _WIDEST / 1.1:
        raise InputError(
            f"the benchmark's TPOT of {result['mean_tpot_ms']:.3g} ms differs by more than a factor of {_WIDEST:g} "
            f"from the predicted {before['mean_tpot_ms']:.3g} ms: check that model, plan, GPU and load match the "
            "benchmark"
        )
    calibrated = dataclasses.replace(
        engine.overheads, step_scale=engine.overheads.step_scale * scale, origin="a calibration by vllm bench serve"
    )
    if result.get("median_ttft_ms"):
        late = result["median_ttft_ms"] - run(calibrated)["median_ttft_ms"]
        calibrated = _with_input(calibrated, calibrated.input_us + 1e3 * late, float(np.median(load.prompt)))
    after = run(calibrated)
    measured = {key: float(result[key]) for key in _SHOWN if result.get(key)}
    begin, end = ({key: float(figures[key]) for key in _SHOWN} for figures in (before, after))
    return ServingCalibration(calibrated, begin, end, measured)


def _with_input(overheads: Overheads, input_us: float, prompt_tokens: float) -> Overheads:
    """With another time before the queue; where it would be below 0, what prompts take by their tokens goes first."""
    if input_us >= 0:
        return dataclasses.replace(overheads, input_us=input_us)
    left_us = input_us + overheads.input_token_us * prompt_tokens
    return dataclasses.replace(overheads, input_us=max(left_us, 0.0), input_token_us=0.0, input_load_us=0.0)


def _corrected(engine: PricedEngine, overheads: Overheads) -> PricedEngine:
    """The engine with another scale of its steps, and another time before the queue, without pricing its steps anew."""
    factor = overheads.step_scale / engine.overheads.step_scale
    scaled = {name: getattr(engine.times, name) * factor for name in TABLES}
    return dataclasses.replace(engine, overheads=overheads, times=dataclasses.replace(engine.times, **scaled))


def write(calibration: ServingCalibration, path: Path, notes: Sequence[str] = ()) -> None:
    """Write as JSON, for ``presim serve --overheads``. ``notes``: on the prices."""
    write_file(path, (json.dumps(document(calibration, path, notes), indent=1, sort_keys=True) + "\n").encode())


def document(calibration: ServingCalibration, path: Path, notes: Sequence[str]) -> dict[str, Any]:
    """The calibration with the file that it is for."""
    return {"schema": SCHEMA, "file": str(path), "notes": list(notes), **dataclasses.asdict(calibration)}


def text(content: dict[str, Any]) -> str:
    """A document in lines."""
    overheads = content["overheads"]
    name = content.get("file", "overheads")
    lines = [f"{name}: steps x {overheads['step_scale']:.3f}, {overheads['input_us'] / 1e3:.1f} ms before the queue"]
    for key in (key for key in _SHOWN if key in content["measured"]):  # files sort their keys
        measured = content["measured"][key]
        before, after = content["before"][key], content["after"][key]
        lines.append(f"  {key}: measured {measured:.4g}, before {before:.4g}, after {after:.4g}")
    return "\n".join([*lines, *content.get("notes", ())])
