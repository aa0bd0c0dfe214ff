"""Fit a cluster to a run: every change names its data and is checked on data that was not used.

A profile shows each kind of work separately. Half of the kinds fit a rate, by the time-weighted median of measured over
predicted time. The other half and the step time check it. A single step time supports one change only: the rate that
the step depends on most.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cost.chain import Chain
from presim.errors import InputError
from presim.hardware import Cluster
from presim.hardware.host import host_factor
from presim.studies.calibrate.parts import WORDS, Part, with_factors
from presim.trace.capture_speed import weighted_median
from presim.trace.schema import Trace
from presim.trace.signatures import (
    Attention,
    Collective,
    Convolution,
    Copy,
    Fused,
    Gemm,
    GroupedGemm,
    MemoryBound,
    Signature,
)
from presim.units import seconds

_LEAST = 0.02  # a smaller difference is no reason to change anything
_WIDEST = 4.0  # times as slow or as fast as described; more is other hardware
_ROUNDS = 16
_KINDS = 2  # of work at least, for a rate
_NUDGE = 0.05
Predict = Callable[[Cluster], float]  # seconds of a step


@dataclasses.dataclass(frozen=True)
class ClusterChange:
    """One change, the data that support it, and its error on held-out work before and after."""

    part: Part
    factor: float  # of the rate; of the host: the factor itself
    support: str  # the data, in words
    before: float | None  # median of |predicted / measured - 1| of what was not used; None: nothing was left
    after: float | None


@dataclasses.dataclass(frozen=True)
class MemoryCheck:
    """Measured and predicted peaks of device memory in bytes; no figure of a cluster could correct them."""

    measured_allocated: int
    measured_reserved: int
    predicted_allocated: int
    predicted_reserved: int


@dataclasses.dataclass(frozen=True, repr=False)
class ClusterCalibration:
    """The fitted changes, and how well they predict the run."""

    changes: tuple[ClusterChange, ...]
    cluster: Cluster
    measured_s: float  # step time that was not used (of a single step time: that one)
    before_s: float
    after_s: float
    held_out: bool  # whether that step time was not used
    notes: tuple[str, ...]
    memory: MemoryCheck | None = None  # None: the profile has no memory events, or no captured job is beside it

    def __repr__(self) -> str:
        changes = ", ".join(f"{change.part} x {change.factor:.3g}" for change in self.changes) or "no change"
        steps = (
            f"step {seconds(self.before_s)} before, {seconds(self.after_s)} after, {seconds(self.measured_s)} measured"
        )
        return f"<ClusterCalibration {changes}: {steps}>"


@dataclasses.dataclass(frozen=True)
class _Kind:
    """One kind of work as the profile shows it."""

    signature: Signature
    measured_ns: float
    weight: float  # all of its time


def fit_to_profile(
    traces: Sequence[Trace],
    cluster: Cluster,
    predict: Predict,
    measured_s: float,
    isolated: Sequence[NDArray[np.bool_]] | None = None,
) -> ClusterCalibration:
    """Fit rates to an imported profile; ``predict`` gives the step time on a cluster.

    ``isolated``: by trace and entry, whether work ran without other work beside it
    (`presim.studies.calibrate.overlapped`); only such work tells a slow rate from a slowdown by overlap. None: all did.
    """
    isolated = isolated if isolated is not None else [np.ones(len(trace), np.bool_) for trace in traces]
    kinds = _kinds(traces, cluster, isolated)
    all_kinds = _kinds(traces, cluster, [np.ones(len(trace), np.bool_) for trace in traces])
    factors: dict[Part, float] = {}
    changes: list[ClusterChange] = []
    notes: list[str] = []
    for part, part_kinds in kinds.items():
        if not part_kinds:
            notes.append(f"{WORDS[part]} stays: {_no_kinds(len(all_kinds[part]))}")
            continue
        ordered = sorted(part_kinds, key=lambda kind: (-kind.weight, str(kind.signature)))
        fitted_kinds, held_out_kinds = ordered[::2], ordered[1::2]
        held_out_kinds = held_out_kinds or fitted_kinds
        factor = _solve(part, fitted_kinds, cluster, traces[0])
        if factor is None or not 1 / _WIDEST < factor < _WIDEST:
            notes.append(
                f"{WORDS[part]} stays: no rate within {_WIDEST:g} times of the described one explains the profile."
            )
            continue
        before, after = (
            _median_relative_error(held_out_kinds, trial, traces[0])
            for trial in (cluster, with_factors(cluster, {part: factor}))
        )
        if abs(factor - 1) < _LEAST or after >= before:
            notes.append(f"{WORDS[part]} stays: it fits, or no other rate fits work that was not used better.")
            continue
        factors[part] = factor
        time = sum(kind.weight for kind in fitted_kinds) / 1e6
        support = f"{len(fitted_kinds)} kinds of work, {time:.2f} ms of the profile"
        is_checked = len(ordered) >= _KINDS
        if not is_checked:
            notes.append(
                f"{WORDS[part]} rests on one kind of work: its rate and its latency cannot be told apart, and nothing "
                "is left to check the change by."
            )
        changes.append(
            ClusterChange(part, factor, support, before if is_checked else None, after if is_checked else None)
        )
    overlapped = _kinds(traces, cluster, [~is_isolated for is_isolated in isolated])
    notes += _overlap_note(
        [*overlapped["arithmetic"], *overlapped["memory"]], with_factors(cluster, factors), traces[0]
    )
    return _make_calibration(changes, notes, cluster, predict, measured_s, held_out=True)


def _overlap_note(kinds: Sequence[_Kind], cluster: Cluster, trace: Trace) -> list[str]:
    """A sentence on how much longer kernels take beside other work; ``cluster``: with the fitted rates."""
    if not kinds:
        return []
    predicted = _predict_ns(kinds, cluster, trace)
    alone_ns = sum(kind.weight * time / max(kind.measured_ns, 1) for kind, time in zip(kinds, predicted, strict=True))
    ratio = sum(kind.weight for kind in kinds) / alone_ns
    return [f"Kernels beside other work took {ratio:.3f} times as long as the fitted rates say of them alone."]


def _no_kinds(overlapped: int) -> str:
    if not overlapped:
        return "the profile has no such work that is long enough to show a rate."
    return (
        f"all {overlapped} kinds of such work ran beside other work, where a slow rate and a slowdown by overlap "
        "cannot be told apart; profile a step without overlap."
    )


def host_factor_of_profile(profiled: Trace, captured: Trace, calls_ns: int) -> float | None:
    """The factor of the hosts: host time of a profiled step over that of the captured one, less library calls."""
    spent, reference = _host_ns(profiled), _host_ns(captured)
    if spent is None or not reference or spent <= calls_ns:
        return None
    return round((spent - calls_ns) / reference, 3)


def with_host_factor(calibration: ClusterCalibration, factor: float, predict: Predict) -> ClusterCalibration:
    """The same with another factor of the hosts."""
    before = host_factor(True, server=calibration.cluster.node.host_factor)
    if abs(factor / before - 1) < _LEAST:
        return calibration
    change = ClusterChange("host", factor, "host time between the calls of the profiled steps", None, None)
    cluster = with_factors(calibration.cluster, {"host": factor})
    return dataclasses.replace(
        calibration, changes=(*calibration.changes, change), cluster=cluster, after_s=predict(cluster)
    )


def fit_to_step_time(
    cluster: Cluster, predict: Predict, used_s: float, held_s: float | None, part: Part | None
) -> ClusterCalibration:
    """Fit the rate that the step time depends on most, or that of the named ``part``.

    Raises:
        InputError: nothing explains the step time.
    """
    before = predict(cluster)
    parts: Sequence[Part] = [part] if part else _present(cluster)
    effects = {candidate: _effect(candidate, cluster, predict, before) for candidate in parts}
    fitted_part = max(effects, key=lambda candidate: effects[candidate])
    if effects[fitted_part] < 1e-3:
        raise InputError(
            f"the step time hardly depends on the {WORDS[fitted_part]}: {_NUDGE:.0%} less of it changes it by "
            f"{effects[fitted_part]:.2%}; name another --change"
        )
    host = host_factor(True, server=cluster.node.host_factor)
    low, high = (host / _WIDEST, host * _WIDEST) if fitted_part == "host" else (1 / _WIDEST, _WIDEST)
    slower = fitted_part == "host"  # a larger factor makes a longer step

    def longer(factor: float) -> bool:
        return predict(with_factors(cluster, {fitted_part: factor})) > used_s

    if longer(low if slower else high) or not longer(high if slower else low):
        raise InputError(
            f"the measured step of {used_s:.4g} s cannot be explained by the {WORDS[fitted_part]} within {_WIDEST:g} "
            f"times of the described one (predicted: {before:.4g} s): check that job and cluster are those of the run, "
            "or name another --change"
        )
    for _ in range(_ROUNDS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if longer(middle) == slower else (middle, high)
    factor = float(np.sqrt(low * high))
    support = f"one step time of {used_s:.4g} s; {_NUDGE:.0%} less of it changes the step by {effects[fitted_part]:.1%}"
    notes = ("A step time supports one change only; a profile of the run (a Chrome trace) supports all.",)
    change = ClusterChange(fitted_part, round(factor, 4), support, None, None)
    target = with_factors(cluster, {fitted_part: change.factor})
    measured = held_s if held_s is not None else used_s
    return ClusterCalibration((change,), target, measured, before, predict(target), held_s is not None, notes)


def _make_calibration(
    changes: Sequence[ClusterChange],
    notes: Sequence[str],
    cluster: Cluster,
    predict: Predict,
    measured_s: float,
    *,
    held_out: bool,
) -> ClusterCalibration:
    factors: dict[Part, float] = {change.part: change.factor for change in changes}
    target = with_factors(cluster, factors)
    before = predict(cluster)
    after = predict(target) if changes else before
    return ClusterCalibration(tuple(changes), target, measured_s, before, after, held_out, tuple(notes))


def _kinds(
    traces: Sequence[Trace], cluster: Cluster, counted: Sequence[NDArray[np.bool_]]
) -> Mapping[Part, list[_Kind]]:
    """Kinds of work on all ranks by the part of the cluster that determines their price; each kind appears once.

    ``counted``: by trace and entry, whether it counts.
    """
    times: dict[tuple[Part, Signature], list[tuple[int, int]]] = {}
    for trace, is_counted in zip(traces, counted, strict=True):
        measured = trace.manifest.measured
        assert measured is not None
        indices = np.where(is_counted, trace.columns["signature"].astype(np.int64), -1)
        counts = np.bincount(indices[indices >= 0], minlength=len(trace.signatures))
        for signature, duration, count in zip(trace.signatures, measured.durations_ns, counts.tolist(), strict=True):
            part = _part(signature, trace, cluster)
            if part is not None and count:
                times.setdefault((part, signature), []).append((duration, count))
    kinds_by_part: dict[Part, list[_Kind]] = {"arithmetic": [], "memory": [], "nvlink": [], "network": []}
    for (part, signature), measured_times in times.items():
        total_ns = float(sum(duration * count for duration, count in measured_times))
        durations, counts_of_durations = zip(*measured_times)
        median_ns = float(np.median(np.repeat(np.array(durations), np.array(counts_of_durations))))
        kinds_by_part[part].append(_Kind(signature, median_ns, total_ns))
    return {part: kinds for part, kinds in kinds_by_part.items() if part in _present(cluster)}


def _part(signature: Signature, trace: Trace, cluster: Cluster) -> Part | None:
    if isinstance(signature, Collective):
        ranks = trace.manifest.groups[signature.group].ranks if signature.group < len(trace.manifest.groups) else ()
        if len(ranks) < 2 or signature.bytes < 1 << 20 or signature.kind in ("send", "recv", "barrier"):
            return None  # latency, or the other side's wait
        return "nvlink" if len({rank // cluster.domain_size for rank in ranks}) == 1 else "network"
    if isinstance(signature, Gemm | GroupedGemm | Attention | Convolution):
        return "arithmetic" if signature.flops > 1e9 else None
    if isinstance(signature, MemoryBound | Fused) or (isinstance(signature, Copy) and signature.direction == "d2d"):
        return "memory" if signature.bytes > 8 << 20 else None
    return None


def _present(cluster: Cluster) -> list[Part]:
    """Parts of the cluster whose factor can be fitted."""
    parts: list[Part] = ["arithmetic", "memory", "host"]
    if cluster.world_size > 1 and cluster.node.interconnect != "pcie" and cluster.gpu.nvlink_bytes_per_s:
        parts.append("nvlink")
    if cluster.world_size > cluster.domain_size:
        parts.append("network")
    return parts


def _predict_ns(kinds: Sequence[_Kind], cluster: Cluster, trace: Trace) -> list[int]:
    chain = Chain.default(cluster, trace.manifest.nccl)
    signatures = [kind.signature for kind in kinds]
    return [price.duration_ns for price in chain.price_all(signatures, trace.manifest.groups, cluster)[0]]


def _solve(part: Part, kinds: Sequence[_Kind], cluster: Cluster, trace: Trace) -> float | None:
    """The factor of the rate at which measured over predicted time is 1 in the weighted median."""
    low, high = 1 / (2 * _WIDEST), 2 * _WIDEST
    for _ in range(_ROUNDS):
        middle = float(np.sqrt(low * high))
        predicted = _predict_ns(kinds, with_factors(cluster, {part: middle}), trace)
        ratios = np.array([kind.measured_ns / max(time, 1) for kind, time in zip(kinds, predicted, strict=True)])
        slower = weighted_median(ratios, np.array([kind.weight for kind in kinds])) > 1
        low, high = (low, middle) if slower else (middle, high)
    return round(float(np.sqrt(low * high)), 4)


def _median_relative_error(kinds: Sequence[_Kind], cluster: Cluster, trace: Trace) -> float:
    """The median of |predicted / measured - 1|, weighted by time."""
    predicted = _predict_ns(kinds, cluster, trace)
    misses = np.array([abs(time / max(kind.measured_ns, 1) - 1) for kind, time in zip(kinds, predicted, strict=True)])
    return weighted_median(misses, np.array([kind.weight for kind in kinds]))


def _effect(part: Part, cluster: Cluster, predict: Predict, before: float) -> float:
    """Relative change of the step time if the part's rate is 5 % lower, or hosts take 5 % longer."""
    host = host_factor(True, server=cluster.node.host_factor)
    factor = host * (1 + _NUDGE) if part == "host" else 1 - _NUDGE
    return abs(predict(with_factors(cluster, {part: factor})) / before - 1)


def _host_ns(trace: Trace) -> float | None:
    """Host time of a step after the first."""
    steps = trace.steps()
    later_steps = steps[1:] or steps
    if not later_steps:
        return None
    return float(statistics.median(int(trace.columns["host_ns"][step].astype(np.int64).sum()) for step in later_steps))


def as_predicted(trace: Trace) -> Trace:
    """The trace of a profile without its measured times, so that models price it."""
    return dataclasses.replace(trace, manifest=msgspec.structs.replace(trace.manifest, measured=None))
