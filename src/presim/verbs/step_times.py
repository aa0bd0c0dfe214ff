"""Times of captured engine steps: their traces are priced and simulated as any, and cut at each step's marks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.pipeline import Evaluation, Prepared, evaluate
from presim.serving.steps.captured import Captured, Sample
from presim.trace import store
from presim.trace.capture_speed import on_idle_machine
from presim.trace.schema import WAITS, Kind, Trace
from presim.trace.signatures import Attention, Gemm

if TYPE_CHECKING:
    from presim.hardware import Cluster

Ints = NDArray[np.int64]


def read_captured(folder: Path, cluster: Cluster) -> Captured:
    """A kept set, for a cluster.

    Host time between kernels comes from a simulation without host noise. What the host does before and after the
    kernels differs from batch to batch, where noise is not told from work: it is the median of a batch's repeats.
    """
    asked, said = (_json(folder / name) for name in ("asked.json", "steps.json"))
    job = store.load(folder / "job")
    traces = [job.traces[rank] for rank in sorted(job.traces)]
    others = job.manifest.others()
    smooth = evaluate(traces, cluster, stands_for=others, brief=True)
    as_it_was = Prepared([on_idle_machine(trace) for trace in traces], False, None)
    rough = evaluate(traces, cluster, stands_for=others, brief=True, prepared=as_it_was)
    vocabulary = asked["config"].get("text_config", asked["config"])["vocab_size"]
    wide = vocabulary // asked["arguments"]["tensor_parallel_size"]
    samples = _samples(asked, said["steps"], _Steps(smooth, wide), _Steps(rough, wide))
    origins, uncertainty = _rests_on(smooth, _typical(smooth.priced.trace, said["steps"], asked["batches"]))
    manifest = traces[0].manifest
    version = manifest.versions.get("vllm") or asked.get("vllm", "")
    source = f"captured from vLLM {version}'s model runner on the emulated {manifest.gpu}"
    return Captured(samples, origins, uncertainty, source)


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path.parent} holds no captured steps ({error}); name a folder of --steps captured"
        ) from error


class _Steps:
    """The phases of each step of one simulated rank."""

    def __init__(self, evaluation: Evaluation, wide: int) -> None:
        trace = evaluation.priced.trace
        self.trace, self.timeline, self.steps = trace, evaluation.timeline, trace.steps()
        signatures = [*trace.signatures, None]
        at = trace.column("signature").astype(np.int64)
        self.work = trace.mask(Kind.WORK, Kind.COLLECTIVE)
        self.waits = trace.mask(*WAITS)
        self.attention = np.array([isinstance(one, Attention) for one in signatures])[at]
        self.logits = np.array([isinstance(one, Gemm) and max(one.m, one.n) >= wide for one in signatures])[at]
        self.of_model = self.work & (_scoped(trace) | (trace.column("value") == 1))

    def __getitem__(self, number: int) -> dict[str, float]:
        """By the fields of `Sample`."""
        window, times = self.steps[number], self.timeline
        here = slice(window.start, window.stop)
        begin = float(times.issue_ns[window.start - 1]) if window.start else 0.0
        model, logits = (np.flatnonzero(mask[here]) + window.start for mask in (self.of_model, self.logits))
        if not len(model) or not len(logits):
            return {}
        first, waits = model[0], np.flatnonzero(self.waits[here]) + window.start
        end = float(times.end_ns[waits[-1]] if len(waits) else times.end_ns[here][self.work[here]].max())
        launched = np.flatnonzero(self.work[here])[-1] + window.start
        attention = np.flatnonzero(self.attention[here]) + window.start
        return {
            "prepare_ns": float(times.start_ns[first]) - begin,
            "launch_ns": float(times.issue_ns[launched] - times.issue_ns[first]),
            "device_ns": end - float(times.start_ns[first]),
            "head_ns": end - float(times.start_ns[logits[0]]),
            "attention_ns": float((times.end_ns[attention] - times.start_ns[attention]).sum()),
            "finish_ns": float(times.issue_ns[window.stop - 1]) - end,
        }

    def mark_ns(self, marks: Sequence[int]) -> float:
        """What a mark takes: the median of steps without anything in them."""
        ends = self.timeline.issue_ns
        spans = [ends[self.steps[one].stop - 1] - ends[self.steps[one].start - 1] for one in marks]
        return float(np.median(spans)) if spans else 0.0


def _scoped(trace: Trace) -> NDArray[np.bool_]:
    named = np.array([*(bool(scope) for scope in trace.scopes), False])
    found: NDArray[np.bool_] = named[trace.column("scope").astype(np.int64)]
    return found


_OF_HOST = ("prepare_ns", "finish_ns")


def _samples(
    asked: dict[str, Any], rows: Sequence[dict[str, Any]], smooth: _Steps, rough: _Steps
) -> tuple[Sample, ...]:
    """One of each batch: medians over its repeats."""
    if len(rows) > len(smooth.steps):
        raise InputError(
            f"the captured job has {len(smooth.steps)} steps, but steps.json has {len(rows)}; capture them again"
        )
    empty = [place for place, row in enumerate(rows) if not row["chunks"] and place]
    marks = [place for place in empty if place - 1 in {0, *empty}][:7]
    mark = rough.mark_ns(marks)
    found = []
    for number, batch in enumerate(asked["batches"]):
        places = [place for place, row in enumerate(rows) if row["batch"] == number]
        both = [(smooth[place], rough[place]) for place in places]
        both = [(one, other) for one, other in both if one and other]
        if not both:
            continue
        times = {
            name: float(np.median([(other if name in _OF_HOST else one)[name] for one, other in both]))
            for name in both[0][0]
        }
        times["finish_ns"] = max(times["finish_ns"] - mark, 0.0)
        found.append(_sample(rows[places[len(places) // 2]]["chunks"], batch["held_out"], times))
    return tuple(found)


def _sample(chunks: Sequence[Sequence[int]], held_out: bool, times: dict[str, float]) -> Sample:
    decodes = tuple(before + 1 for count, before, _ in chunks if count == 1)
    prefills = tuple((count, before + count) for count, before, _ in chunks if count > 1)
    return Sample(decodes, prefills, held_out, **times)


def _typical(trace: Trace, rows: Sequence[dict[str, Any]], batches: Sequence[dict[str, Any]]) -> slice:
    """The step of which the result says what it rests on: 32 decodes, or the nearest."""
    sizes = {
        number: len(batch["decodes"])
        for number, batch in enumerate(batches)
        if not batch["prefills"] and not batch["held_out"]
    }
    nearest = min(sizes, key=lambda number: abs(sizes[number] - 32))
    return trace.steps()[next(place for place, row in enumerate(rows) if row["batch"] == nearest)]


def _rests_on(evaluation: Evaluation, window: slice) -> tuple[dict[str, float], float]:
    """Part of a step's device time by origin of its prices, and the relative uncertainty."""
    priced = evaluation.priced
    by_origin: Counter[str] = Counter()
    wide: Counter[str] = Counter()
    places = priced.trace.column("signature")[window].astype(np.int64)
    for place, count in Counter(places[places >= 0].tolist()).items():
        price = priced.prices[place]
        by_origin[price.origin.name.lower()] += count * price.duration_ns
        spread = count * price.duration_ns * price.uncertainty
        wide[type(priced.trace.signatures[place]).__name__] += spread  # type: ignore[assignment]  # a Counter of times
    total = sum(by_origin.values()) or 1
    uncertainty = float(np.sqrt(sum(float(value) ** 2 for value in wide.values()))) / total
    return {origin: ns / total for origin, ns in sorted(by_origin.items())}, uncertainty
