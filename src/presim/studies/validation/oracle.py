"""Splits the error of a prediction by a recording of the real run, whose measured times replace predicted ones in turn.

The recording gives the structure of the step: work, streams, waits, host time. The first simulation has all measured
times (an oracle's, as in Maya, section 7.2); each further one replaces one part of them by presim's prediction. The
differences between neighbours add up to the difference between the last simulation and the measured step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from presim.cost.chain import Chain, price_trace
from presim.cost.price import Price, PricedTrace
from presim.cost.profiled import origin_of
from presim.engine.ops import host_ns
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.hardware import Cluster
from presim.sources.readers import open_files
from presim.sources.source import SourceRequest
from presim.trace.job import Job
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Collective, family

Pricer = Callable[[Trace, Cluster], PricedTrace]


@dataclasses.dataclass(frozen=True)
class ErrorPart:
    """One part of a prediction's error."""

    name: str
    seconds: float  # prediction minus measurement; negative: the prediction is short by so much
    device_s: float | None  # the same if hosts took no time; None: that has no meaning
    meaning: str


@dataclasses.dataclass(frozen=True)
class FamilyError:
    """Device time of one family of work in a step."""

    family: str
    calls: int
    measured_s: float
    predicted_s: float


@dataclasses.dataclass(frozen=True)
class OracleSplit:
    """The measured step, the predicted one, and the parts of their difference in the order of the simulations."""

    source: str
    gpu: str
    ranks: int
    measured_s: float
    predicted_s: float
    parts: list[ErrorPart]
    families: list[FamilyError]  # longest first


def split_error(files: Sequence[Path], request: SourceRequest, predicted_job: Path | None = None) -> OracleSplit:
    """Split the error of predicting a recorded step; ``predicted_job``: a saved capture of the same job.

    Raises:
        InputError: the files are no recording with a measured step, or the saved job is of another size.
    """
    request = dataclasses.replace(request, missing="same")
    recording = open_files(files, request).job()
    gapless = open_files(files, dataclasses.replace(request, keeps_pauses=False)).job()
    measured = recording.traces[0].manifest.measured
    if measured is None or not measured.step_ns:
        raise InputError(
            f"{files[0]} has no measured step: name a profile of PyTorch's profiler, one file for each rank"
        )
    cluster = origin_of(measured)
    variants = [
        (
            "replay",
            recording,
            _measured_pricer,
            False,
            "the simulation of the measured times, beside the measured step",
        ),
        ("missing", gapless, _measured_pricer, False, _MISSING),
        ("prices", gapless, _device_pricer, False, "predicted times of device work"),
        ("communication", gapless, price_predicted, False, "predicted times of collectives"),
        ("overlap", gapless, price_predicted, True, "slowdown of work that overlaps"),
    ]
    runs = [_simulated(job, cluster, pricer, contention=contends) for _, job, pricer, contends, _ in variants]
    without_host = [
        _simulated(job, cluster, pricer, contention=contends, factor=0.0) for _, job, pricer, contends, _ in variants
    ]
    times = [measured.step_ns / 1e9, *map(_step_s, runs)]
    device_times = [*map(_step_s, without_host)]
    parts = [
        ErrorPart(name, times[index + 1] - times[index], _difference(device_times, index), meaning)
        for index, (name, _, _, _, meaning) in enumerate(variants)
    ]
    if predicted_job is not None:
        parts += _of_capture(predicted_job, runs[-1], times[-1])
        times.append(times[-1] + sum(part.seconds for part in parts[-2:]))
    families = _families(gapless.traces[0], runs[-1].priced, len(gapless.traces[0].steps()))
    return OracleSplit(measured.source, cluster.gpu.id, cluster.world_size, times[0], times[-1], parts, families)


_MISSING = "pauses of the device that no launch, stream or event explains; a prediction has none"


def _difference(times: Sequence[float], index: int) -> float | None:
    return times[index] - times[index - 1] if index else None


def price_predicted(trace: Trace, cluster: Cluster) -> PricedTrace:
    """The prices of a trace as if nothing had been measured."""
    return price_trace(_unmeasured(trace), cluster, _chain(trace, cluster))


def _unmeasured(trace: Trace) -> Trace:
    return dataclasses.replace(trace, manifest=msgspec.structs.replace(trace.manifest, measured=None))


def _chain(trace: Trace, cluster: Cluster) -> Chain:
    return Chain.default(cluster, trace.manifest.nccl)


def _measured_pricer(trace: Trace, cluster: Cluster) -> PricedTrace:
    return price_trace(trace, cluster, _chain(trace, cluster))


def _device_pricer(trace: Trace, cluster: Cluster) -> PricedTrace:
    """Predicted device work, measured collectives."""
    predicted, measured = price_predicted(trace, cluster), _measured_pricer(trace, cluster)
    prices: list[Price] = [
        after if isinstance(signature, Collective) else before
        for signature, before, after in zip(trace.signatures, predicted.prices, measured.prices, strict=True)
    ]
    return dataclasses.replace(predicted, prices=tuple(prices))


def _simulated(
    job: Job, cluster: Cluster, pricer: Pricer, *, contention: bool = True, factor: float | None = None
) -> Evaluation:
    if factor is None and job.traces[0].manifest.measured is not None:
        factor = 1.0  # recorded host time is that of these hosts
    options = Options.of(host_factor=factor, host_time=factor != 0, contention=contention)
    return evaluate(job, cluster, options, pricer=pricer, brief=True)


def _of_capture(path: Path, recorded: Evaluation, before_s: float) -> list[ErrorPart]:
    """The parts that only a saved capture shows: its work with the recording's amount of host time, then its own."""
    job, cluster = Job.load(path), recorded.cluster
    world_size = job.traces[0].manifest.world_size
    if world_size != cluster.world_size:
        raise InputError(
            f"{path} is a job of {world_size} ranks, and the recording has {cluster.world_size}; "
            "capture the recorded job"
        )
    predicted = _simulated(job, cluster, price_predicted)
    target_ns = _host_per_step_ns(recorded.priced.trace, recorded.options)
    captured_ns = _host_per_step_ns(predicted.priced.trace, predicted.options)
    calls_ns = _host_per_step_ns(predicted.priced.trace, dataclasses.replace(predicted.options, host_factor=0.0))
    ratio = max(target_ns - calls_ns, 0.0) / max(captured_ns - calls_ns, 1.0)  # library calls are not captured
    factor = predicted.options.host_factor_of(predicted.priced.trace.manifest) * ratio
    with_host_s = _step_s(_simulated(job, cluster, price_predicted, factor=factor))
    amounts = f"captured host time of {captured_ns / 1e6:.3g} ms a step, recorded {target_ns / 1e6:.3g} ms"
    return [
        ErrorPart("work", with_host_s - before_s, None, "work that only the capture or only the recording has"),
        ErrorPart("host", _step_s(predicted) - with_host_s, None, amounts),
    ]


def _host_per_step_ns(trace: Trace, options: Options) -> float:
    steps = trace.steps()
    return float(host_ns(trace, options)[steps[0].start : steps[-1].stop].sum()) / len(steps)


def _step_s(evaluation: Evaluation) -> float:
    if evaluation.result.step_time_s is None:
        raise InputError("the recording has no step that can be simulated; record at least one whole step")
    return evaluation.result.step_time_s


def _families(trace: Trace, predicted: PricedTrace, steps: int) -> list[FamilyError]:
    """Measured and predicted device time of a step by family."""
    assert trace.manifest.measured is not None  # checked by the caller
    numbers = trace.columns["signature"][trace.mask(Kind.WORK, Kind.COLLECTIVE)].astype(np.int64)
    counts = np.bincount(numbers, minlength=len(trace.signatures)).tolist()
    sums: dict[str, list[float]] = {}
    for signature, price, duration_ns, count in zip(
        trace.signatures, predicted.prices, trace.manifest.measured.durations_ns, counts, strict=True
    ):
        row = sums.setdefault(family(signature), [0, 0, 0])
        row[0] += count
        row[1] += count * duration_ns / 1e9 / steps
        row[2] += count * price.duration_ns / 1e9 / steps
    rows = [FamilyError(name, round(row[0] / steps), row[1], row[2]) for name, row in sums.items()]
    return sorted(rows, key=lambda row: (-row.measured_s, row.family))


def render(split: OracleSplit) -> str:
    """The split as lines of text, ready for Markdown."""
    error = split.predicted_s / split.measured_s - 1
    lines = [
        f"{split.source} on {split.ranks} x {split.gpu}: measured {split.measured_s * 1e3:.3f} ms, predicted "
        f"{split.predicted_s * 1e3:.3f} ms ({error:+.1%}).",
        "",
        "| part | error in ms | of the step | in ms without host time | what it is |",
        "|---|---:|---:|---:|---|",
    ]
    for part in split.parts:
        device_ms = "" if part.device_s is None else f"{part.device_s * 1e3:+.3f}"
        share = part.seconds / split.measured_s
        lines.append(f"| {part.name} | {part.seconds * 1e3:+.3f} | {share:+.1%} | {device_ms} | {part.meaning} |")
    lines += ["", "| family | calls | measured ms | predicted ms | error |", "|---|---:|---:|---:|---:|"]
    for row in split.families:
        change = f"{row.predicted_s / row.measured_s - 1:+.1%}" if row.measured_s else ""
        lines.append(
            f"| {row.family} | {row.calls} | {row.measured_s * 1e3:.3f} | {row.predicted_s * 1e3:.3f} | {change} |"
        )
    return "\n".join(lines)
