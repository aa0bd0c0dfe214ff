"""Predicts one case by the same pipeline as ``presim run``."""

from __future__ import annotations

import bisect
import dataclasses
import time
from collections.abc import Mapping, Sequence

import msgspec

from presim.analysis.memory.blocks import allocated_bytes, reserved_bytes
from presim.engine.simulation_options import Options
from presim.errors import reason_of
from presim.evaluation.evaluate_traces import Evaluation
from presim.result import Result
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.plausibility import least_share
from presim.studies.validation.results import RUN_FAILED, Prediction
from presim.studies.validation.runs import Providers, ValidationRun
from presim.trace.schema import Trace
from presim.units import GIB

_ROOM = 2  # cases that do not fit are repeated on GPUs with this multiple of their memory


def solve(case: Case, providers: Providers, options: Options | None = None) -> Prediction:
    """The prediction of a case, or the reason for its absence."""
    begun = time.perf_counter()
    try:
        run = providers.prepare(case)
        prediction = _predict(case, run, options)
        if prediction.outcome == "out_of_memory" and case.number("step_time_s"):
            prediction = _predict_with_more_memory(case, run, options, prediction)
    except CannotBuildError as error:
        prediction = Prediction(reason=str(error))
    except Exception as error:  # noqa: BLE001  a bug in one case must not lose the others
        prediction = Prediction(reason=f"{RUN_FAILED}: {_one_line(reason_of(error))}")
    return dataclasses.replace(prediction, seconds=time.perf_counter() - begun)


def _predict(case: Case, run: ValidationRun, options: Options | None) -> Prediction:
    traces = run.traces()
    evaluation = run.evaluate(traces, options)
    return _scale_to_measured_step(run, traces, evaluation, _prediction(case, run, traces, evaluation.result))


def _predict_with_more_memory(case: Case, run: ValidationRun, options: Options | None, short: Prediction) -> Prediction:
    """Time and memory on GPUs with more memory, for a measured case that does not fit in the simulation."""
    gpu = run.cluster.gpu
    larger = msgspec.structs.replace(gpu, memory_bytes=_ROOM * gpu.memory_bytes)
    prediction = _predict(case, run.on(msgspec.structs.replace(run.cluster, gpu=larger)), options)
    if prediction.outcome != "ok":
        return short
    reason = f"{short.reason}; time and memory are those of GPUs with {_ROOM} times the memory"
    return dataclasses.replace(prediction, outcome=short.outcome, reason=reason, memory_bytes=gpu.memory_bytes)


def _prediction(case: Case, run: ValidationRun, traces: Sequence[Trace], result: Result) -> Prediction:
    """The step time of the job and the memory of the measured rank."""
    manifests = [trace.manifest for trace in traces]
    failed = next((manifest for manifest in manifests if manifest.exit not in ("ok", "stopped")), None)
    if failed is not None and failed.exit == "out_of_memory":
        reason = f"out of memory in the emulation: {_one_line(failed.error)}"
        return Prediction(outcome="out_of_memory", reason=reason)
    if failed is not None:
        return Prediction(reason=f"the {run.what} failed: {_one_line(failed.error)}")
    return Prediction(
        step_time_s=result.step_time_s,
        peak_mem_gib=_measured_peak(case, run.stands_for(), traces) / GIB,
        low_step_time_s=result.step_time_low_s,
        high_step_time_s=result.step_time_high_s,
        outcome="ok",
        least_step_s=least_share(result, run.cluster.gpu) * (result.step_time_s or 0.0),
        memory_bytes=run.cluster.gpu.memory_bytes,
        provenance=" ".join(f"{share.name} {share.share:.0%}" for share in result.provenance.by_origin),
    )


def _scale_to_measured_step(
    run: ValidationRun, traces: Sequence[Trace], evaluation: Evaluation, prediction: Prediction
) -> Prediction:
    """Scale time and interval to the measured step, if it differs from the simulated one."""
    step = run.step_s(traces, evaluation) if prediction.step_time_s else None
    if step is None or prediction.step_time_s is None:
        return prediction
    low, high = (
        bound and bound * step / prediction.step_time_s
        for bound in (prediction.low_step_time_s, prediction.high_step_time_s)
    )
    least = prediction.least_step_s * step / prediction.step_time_s
    return dataclasses.replace(
        prediction, step_time_s=step, low_step_time_s=low, high_step_time_s=high, least_step_s=least
    )


def _measured_peak(case: Case, stands_for: Mapping[int, Sequence[int]], traces: Sequence[Trace]) -> int:
    """Peak bytes of the measured rank, or of the fullest captured rank if it is unknown.

    If the measured rank was not captured, its representative or the next lower captured rank counts. The peak is read
    from the traces, because a result has the memory of its fullest rank.
    """
    bytes_of = reserved_bytes if case.measured_memory()[1] == "reserved" else allocated_bytes
    peaks = [int(bytes_of(trace).max(initial=0)) for trace in traces]
    rank = case.measured_rank()
    if rank is None:
        return max(peaks)
    if rank < 0:
        rank = traces[0].manifest.world_size - 1
    captured = [trace.manifest.rank for trace in traces]
    rank = next((representative for representative, represented in stands_for.items() if rank in represented), rank)
    return peaks[max(0, bisect.bisect_right(captured, rank) - 1)]


def _one_line(error: object) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:300] + " …"
