"""Times of captured engine steps: their traces are priced and simulated as any, and cut at each step's marks."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cost.chain import price_trace
from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.engine.timeline import Timeline
from presim.errors import InputError
from presim.evaluation.idle_machine import prepare
from presim.hardware.host import host_factor
from presim.serving.steps.batches import experts_of
from presim.serving.steps.captured_step_times import CapturedSteps, Sample
from presim.serving.steps.overheads import all_reduce_ns
from presim.system.files import FormatError, decode_json, read_bytes
from presim.trace import job_store
from presim.trace.capture_speed import on_idle_machine
from presim.trace.representatives import Representatives
from presim.trace.schema import WAITS, Kind, Trace
from presim.trace.signatures import Attention, Elementwise, Gemm, Signature
from presim.verbs.step_kernels import is_all_reduce, is_attention, is_expert_work, with_own_experts

if TYPE_CHECKING:
    from presim.hardware import Cluster

Ints = NDArray[np.int64]


def read_captured(folder: Path, cluster: Cluster, prices: Sequence[Path] = ()) -> CapturedSteps:
    """The captured steps of a saved set, priced and simulated for a cluster.

    Launches between kernels come from a simulation without host noise, the device's own time from one whose host takes
    no time. What the host does before and after the kernels differs from batch to batch, where noise is not told from
    work: it comes from host times as captured, in the median of a batch's repeats.
    """
    request, recorded = _read(folder / "asked.json", _Request), _read(folder / "steps.json", _StepRecords)
    job = job_store.load(folder / "job")
    ranks = request.arguments.get("tensor_parallel_size", 1)
    divides_experts = request.arguments.get("enable_expert_parallel") and ranks > 1
    shared = experts_of(request.config) if divides_experts else None
    traces = [with_own_experts(job.traces[rank], shared, ranks) for rank in sorted(job.traces)]
    priced = [_with_all_reduces(price_trace(trace, cluster, prices=prices), cluster, ranks) for trace in traces]
    alike = Representatives([trace.manifest.rank for trace in traces], job.manifest.others())

    def steps(hosts: Sequence[Trace], options: Options) -> _Steps:
        ranks = [dataclasses.replace(priced_rank, trace=trace) for priced_rank, trace in zip(priced, hosts)]
        timelines = simulate_job(ranks, options=options, representatives=alike)
        return _Steps(hosts[0], timelines[hosts[0].manifest.rank], vocabulary_per_rank)

    vocabulary_per_rank = request.config["vocab_size"] // ranks
    manifest = traces[0].manifest
    factor = host_factor(manifest.reference_host, manifest.host_probe_ns, cluster.node.host_factor)
    real = Options(host_factor=factor)
    smooth, rough = steps(prepare(traces).traces, real), steps([on_idle_machine(trace) for trace in traces], real)
    samples = _samples(request, recorded.steps, smooth, rough, steps(traces, Options.of(host_time=False)))
    origins, uncertainty = _time_by_origin(priced[0], _typical_step(traces[0], recorded.steps, request.batches))
    version = manifest.versions.get("vllm") or request.vllm
    source = f"captured from vLLM {version}'s model runner on the emulated {manifest.gpu}"
    blocks = recorded.blocks if cluster.gpu.id == manifest.gpu else None
    return CapturedSteps(samples, origins, uncertainty, source, blocks)


def _with_all_reduces(priced: PricedTrace, cluster: Cluster, ranks: int) -> PricedTrace:
    """vLLM's own all-reduce at the price that composed steps have for it, as its signature does not tell its ranks."""

    def price(signature: Signature, listed_price: Price) -> Price:
        if not (isinstance(signature, Elementwise) and is_all_reduce(signature)):
            return listed_price
        ns = all_reduce_ns(cluster, ranks, signature.bytes_read)
        return (
            listed_price
            if ns is None
            else Price(round(ns), Origin.MEASURED, listed_price.uncertainty, "all-reduce", "network")
        )

    prices = tuple(
        price(signature, listed_price) for signature, listed_price in zip(priced.trace.signatures, priced.prices)
    )
    return dataclasses.replace(priced, prices=prices)


class _Batch(msgspec.Struct, frozen=True):
    decodes: list[int]
    prefills: list[int]
    held_out: bool


class _Request(msgspec.Struct, frozen=True):
    """``asked.json``."""

    config: dict[str, Any]
    arguments: dict[str, Any]
    batches: list[_Batch]
    vllm: str = ""


class _Row(msgspec.Struct, frozen=True):
    """A step of the trace."""

    part: str
    chunks: list[tuple[int, int, int]]  # tokens, tokens before them, whether a token is sampled
    batch: int


class _StepRecords(msgspec.Struct, frozen=True):
    """``steps.json``."""

    blocks: int
    steps: list[_Row]


_File = TypeVar("_File", _Request, _StepRecords)


def _read(path: Path, kind: type[_File]) -> _File:
    try:
        return decode_json(read_bytes(path, "name a folder of --steps captured"), kind)
    except FormatError as error:
        raise InputError(
            f"{path.parent} holds no captured steps ({error}); name a folder of --steps captured"
        ) from error


class _Steps:
    """The parts of each engine step of one simulated rank: three steps of the trace."""

    def __init__(self, trace: Trace, timeline: Timeline, vocabulary_per_rank: int) -> None:
        self.trace, self.timeline, self.steps = trace, timeline, trace.steps()
        signatures = [*trace.signatures, None]
        signature_index = trace.column("signature").astype(np.int64)
        self.work = trace.mask(Kind.WORK, Kind.COLLECTIVE)
        self.waits = trace.mask(*WAITS)
        self.attention = np.array([is_attention(signature) for signature in signatures])[signature_index]
        self.experts = is_expert_work(trace) & self.work
        self.keys = np.array([signature.kv_len if isinstance(signature, Attention) else 0 for signature in signatures])[
            signature_index
        ]
        self.logits = np.array(
            [
                isinstance(signature, Gemm) and max(signature.m, signature.n) >= vocabulary_per_rank
                for signature in signatures
            ]
        )[signature_index]
        self.of_model = self.work & (_has_scope(trace) | (trace.column("value") == 1))

    def span_ns(self, number: int) -> float:
        """From the mark before a step of the trace to its own."""
        window, issues_ns = self.steps[number], self.timeline.issue_ns
        return float(issues_ns[window.stop - 1] - (issues_ns[window.start - 1] if window.start else 0))

    def times(self, finish: int, mark_ns: float) -> dict[str, float]:
        """By the fields of `Sample`. ``finish``: the last of the engine step's three; ``mark_ns``: of each mark."""
        window, times = self.steps[finish - 1], self.timeline
        entries = slice(window.start, window.stop)
        model, logits, waits, work, attention, experts = (
            np.flatnonzero(mask[entries]) + window.start
            for mask in (self.of_model, self.logits, self.waits, self.work, self.attention, self.experts)
        )
        if not len(model) or not len(logits):
            return {}
        first = model[0]
        end = float(times.end_ns[waits[-1]] if len(waits) else times.end_ns[work].max())
        inputs = float(times.start_ns[first] - times.issue_ns[window.start - 1])
        return {
            "prepare_ns": max(self.span_ns(finish - 2) - mark_ns, 0.0) + inputs,
            "launch_ns": float(times.issue_ns[work[-1]] - times.issue_ns[first]),
            "device_ns": end - float(times.start_ns[first]),
            "head_ns": end - float(times.start_ns[logits[0]]),
            "attention_ns": float((times.end_ns[attention] - times.start_ns[attention]).sum()),
            "experts_ns": float((times.end_ns[experts] - times.start_ns[experts]).sum()),
            "finish_ns": max(self.span_ns(finish) - mark_ns, 0.0),
            "attention_keys": float(self.keys[attention].max()) if len(attention) else 0.0,
        }


def _has_scope(trace: Trace) -> NDArray[np.bool_]:
    named = np.array([*(bool(scope) for scope in trace.scopes), False])
    is_scoped: NDArray[np.bool_] = named[trace.column("scope").astype(np.int64)]
    return is_scoped


_OF_HOST = ("prepare_ns", "finish_ns")


def _samples(
    request: _Request, rows: Sequence[_Row], smooth: _Steps, rough: _Steps, device_only: _Steps
) -> tuple[Sample, ...]:
    """One sample per batch: medians over its repeats."""
    if len(rows) > len(smooth.steps):
        raise InputError(
            f"the captured job has {len(smooth.steps)} steps, but steps.json has {len(rows)}; capture them again"
        )
    marks = [rough.span_ns(index) for index, row in enumerate(rows) if row.part == "nothing" and index]
    mark = float(np.median(marks)) if marks else 0.0
    samples = []
    for number, batch in enumerate(request.batches):
        indices = [index for index, row in enumerate(rows) if row.batch == number]
        of_host, of_launches, of_device = (
            _medians([steps.times(index, mark) for index in indices]) for steps in (rough, smooth, device_only)
        )
        if of_device:
            times = {**of_device, **{name: of_host[name] for name in _OF_HOST}}
            times |= {"launch_ns": of_launches["launch_ns"], "waits_ns": of_launches["device_ns"]}
            samples.append(_sample(rows[indices[len(indices) // 2]].chunks, batch.held_out, times))
    return tuple(samples)


def _medians(times: Sequence[dict[str, float]]) -> dict[str, float]:
    repeats = [repeat for repeat in times if repeat]
    return {name: float(np.median([repeat[name] for repeat in repeats])) for name in repeats[0]} if repeats else {}


def _sample(chunks: Sequence[Sequence[int]], held_out: bool, times: dict[str, float]) -> Sample:
    decodes = tuple(before + 1 for count, before, _ in chunks if count == 1)
    prefills = tuple((count, before + count) for count, before, _ in chunks if count > 1)
    keys = times.pop("attention_keys")
    lengths = {*((1, length) for length in decodes), *prefills}
    exact = len(lengths) == 1 and {length for _, length in lengths} == {keys}
    return Sample(decodes, prefills, held_out, attention_exact=exact, **times)


def _typical_step(trace: Trace, rows: Sequence[_Row], batches: Sequence[_Batch]) -> slice:
    """The step whose origins of prices the result shows: 32 decodes, or the nearest number."""
    sizes = {
        number: len(batch.decodes) for number, batch in enumerate(batches) if not batch.prefills and not batch.held_out
    }
    if not sizes:
        raise InputError("captured steps have decodes and prompts; capture them with --steps captured")
    nearest = min(sizes, key=lambda number: abs(sizes[number] - 32))
    return trace.steps()[next(index for index, row in enumerate(rows) if row.batch == nearest) - 1]


def _time_by_origin(priced: PricedTrace, window: slice) -> tuple[dict[str, float], float]:
    """Part of a step's device time by origin of its prices, and the relative uncertainty."""
    by_origin: Counter[str] = Counter()
    uncertain_ns: Counter[str] = Counter()
    signature_indices = priced.trace.column("signature")[window].astype(np.int64)
    for index, count in Counter(signature_indices[signature_indices >= 0].tolist()).items():
        price = priced.prices[index]
        by_origin[price.origin.name.lower()] += count * price.duration_ns
        spread = count * price.duration_ns * price.uncertainty
        uncertain_ns[type(priced.trace.signatures[index]).__name__] += spread  # type: ignore[assignment]  # a Counter of times
    total = sum(by_origin.values()) or 1
    uncertainty = float(np.sqrt(sum(float(value) ** 2 for value in uncertain_ns.values()))) / total
    return {origin: ns / total for origin, ns in sorted(by_origin.items())}, uncertainty
