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
from presim.engine.options import Options
from presim.engine.simulate import simulate_job
from presim.engine.timeline import Timeline
from presim.errors import InputError
from presim.files import FormatError, decode_json, read_bytes
from presim.hardware.host import host_factor
from presim.prepared import prepare
from presim.serving.model import from_config
from presim.serving.steps.captured import Captured, Sample
from presim.serving.steps.overheads import all_reduce_ns
from presim.trace import store
from presim.trace.capture_speed import on_idle_machine
from presim.trace.representatives import Representatives
from presim.trace.schema import WAITS, Kind, Trace
from presim.trace.signatures import Attention, Elementwise, Gemm, Signature
from presim.verbs.step_kernels import is_all_reduce, is_attention, of_experts, of_own_experts

if TYPE_CHECKING:
    from presim.hardware import Cluster

Ints = NDArray[np.int64]


def read_captured(folder: Path, cluster: Cluster, prices: Sequence[Path] = ()) -> Captured:
    """A kept set, for a cluster.

    Launches between kernels come from a simulation without host noise, the device's own time from one whose host takes
    no time. What the host does before and after the kernels differs from batch to batch, where noise is not told from
    work: it comes from host times as captured, in the median of a batch's repeats.
    """
    asked, said = _read(folder / "asked.json", _Asked), _read(folder / "steps.json", _Said)
    job = store.load(folder / "job")
    model = from_config(asked.config, str(folder))
    ranks = asked.arguments.get("tensor_parallel_size", 1)
    shared = model.experts if asked.arguments.get("enable_expert_parallel") and ranks > 1 else None
    traces = [of_own_experts(job.traces[rank], shared, ranks) for rank in sorted(job.traces)]
    priced = [_with_all_reduces(price_trace(trace, cluster, prices=prices), cluster, ranks) for trace in traces]
    alike = Representatives([trace.manifest.rank for trace in traces], job.manifest.others())

    def steps(hosts: Sequence[Trace], options: Options) -> _Steps:
        ranks = [dataclasses.replace(one, trace=trace) for one, trace in zip(priced, hosts)]
        timelines = simulate_job(ranks, options=options, representatives=alike)
        return _Steps(hosts[0], timelines[hosts[0].manifest.rank], wide)

    wide = model.vocabulary // ranks
    manifest = traces[0].manifest
    factor = host_factor(manifest.reference_host, manifest.host_probe_ns, cluster.node.host_factor)
    real = Options(host_factor=factor)
    smooth, rough = steps(prepare(traces).traces, real), steps([on_idle_machine(trace) for trace in traces], real)
    samples = _samples(asked, said.steps, smooth, rough, steps(traces, Options.of(host_time=False)))
    origins, uncertainty = _rests_on(priced[0], _typical(traces[0], said.steps, asked.batches))
    version = manifest.versions.get("vllm") or asked.vllm
    source = f"captured from vLLM {version}'s model runner on the emulated {manifest.gpu}"
    blocks = said.blocks if cluster.gpu.id == manifest.gpu else None
    return Captured(samples, origins, uncertainty, source, blocks)


def _with_all_reduces(priced: PricedTrace, cluster: Cluster, ranks: int) -> PricedTrace:
    """vLLM's own all-reduce at the price that composed steps have for it, as its signature does not tell its ranks."""

    def price(signature: Signature, known: Price) -> Price:
        if not (isinstance(signature, Elementwise) and is_all_reduce(signature)):
            return known
        ns = all_reduce_ns(cluster, ranks, signature.bytes_read)
        return known if ns is None else Price(round(ns), Origin.MEASURED, known.uncertainty, "all-reduce", "network")

    found = tuple(price(one, known) for one, known in zip(priced.trace.signatures, priced.prices))
    return dataclasses.replace(priced, prices=found)


class _Batch(msgspec.Struct, frozen=True):
    decodes: list[int]
    prefills: list[int]
    held_out: bool


class _Asked(msgspec.Struct, frozen=True):
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


class _Said(msgspec.Struct, frozen=True):
    """``steps.json``."""

    blocks: int
    steps: list[_Row]


_File = TypeVar("_File", _Asked, _Said)


def _read(path: Path, kind: type[_File]) -> _File:
    try:
        return decode_json(read_bytes(path, "name a folder of --steps captured"), kind)
    except FormatError as error:
        raise InputError(
            f"{path.parent} holds no captured steps ({error}); name a folder of --steps captured"
        ) from error


class _Steps:
    """The parts of each engine step of one simulated rank: three steps of the trace."""

    def __init__(self, trace: Trace, timeline: Timeline, wide: int) -> None:
        self.trace, self.timeline, self.steps = trace, timeline, trace.steps()
        signatures = [*trace.signatures, None]
        at = trace.column("signature").astype(np.int64)
        self.work = trace.mask(Kind.WORK, Kind.COLLECTIVE)
        self.waits = trace.mask(*WAITS)
        self.attention = np.array([is_attention(one) for one in signatures])[at]
        self.experts = of_experts(trace) & self.work
        self.keys = np.array([one.kv_len if isinstance(one, Attention) else 0 for one in signatures])[at]
        self.logits = np.array([isinstance(one, Gemm) and max(one.m, one.n) >= wide for one in signatures])[at]
        self.of_model = self.work & (_scoped(trace) | (trace.column("value") == 1))

    def span_ns(self, number: int) -> float:
        """From the mark before a step of the trace to its own."""
        window, ends = self.steps[number], self.timeline.issue_ns
        return float(ends[window.stop - 1] - (ends[window.start - 1] if window.start else 0))

    def times(self, finish: int, mark_ns: float) -> dict[str, float]:
        """By the fields of `Sample`. ``finish``: the last of the engine step's three; ``mark_ns``: of each mark."""
        window, times = self.steps[finish - 1], self.timeline
        here = slice(window.start, window.stop)
        model, logits, waits, work, attention, experts = (
            np.flatnonzero(mask[here]) + window.start
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


def _scoped(trace: Trace) -> NDArray[np.bool_]:
    named = np.array([*(bool(scope) for scope in trace.scopes), False])
    found: NDArray[np.bool_] = named[trace.column("scope").astype(np.int64)]
    return found


_OF_HOST = ("prepare_ns", "finish_ns")


def _samples(asked: _Asked, rows: Sequence[_Row], smooth: _Steps, rough: _Steps, alone: _Steps) -> tuple[Sample, ...]:
    """One of each batch: medians over its repeats."""
    if len(rows) > len(smooth.steps):
        raise InputError(
            f"the captured job has {len(smooth.steps)} steps, but steps.json has {len(rows)}; capture them again"
        )
    marks = [rough.span_ns(place) for place, row in enumerate(rows) if row.part == "nothing" and place]
    mark = float(np.median(marks)) if marks else 0.0
    found = []
    for number, batch in enumerate(asked.batches):
        places = [place for place, row in enumerate(rows) if row.batch == number]
        of_host, of_launches, of_device = (
            _medians([steps.times(place, mark) for place in places]) for steps in (rough, smooth, alone)
        )
        if of_device:
            times = {**of_device, **{name: of_host[name] for name in _OF_HOST}}
            times |= {"launch_ns": of_launches["launch_ns"], "waits_ns": of_launches["device_ns"]}
            found.append(_sample(rows[places[len(places) // 2]].chunks, batch.held_out, times))
    return tuple(found)


def _medians(times: Sequence[dict[str, float]]) -> dict[str, float]:
    found = [one for one in times if one]
    return {name: float(np.median([one[name] for one in found])) for name in found[0]} if found else {}


def _sample(chunks: Sequence[Sequence[int]], held_out: bool, times: dict[str, float]) -> Sample:
    decodes = tuple(before + 1 for count, before, _ in chunks if count == 1)
    prefills = tuple((count, before + count) for count, before, _ in chunks if count > 1)
    keys = times.pop("attention_keys")
    lengths = {*((1, own) for own in decodes), *prefills}
    exact = len(lengths) == 1 and {own for _, own in lengths} == {keys}
    return Sample(decodes, prefills, held_out, attention_exact=exact, **times)


def _typical(trace: Trace, rows: Sequence[_Row], batches: Sequence[_Batch]) -> slice:
    """The step of which the result says what it rests on: 32 decodes, or the nearest."""
    sizes = {
        number: len(batch.decodes) for number, batch in enumerate(batches) if not batch.prefills and not batch.held_out
    }
    if not sizes:
        raise InputError("captured steps have decodes and prompts; capture them with --steps captured")
    nearest = min(sizes, key=lambda number: abs(sizes[number] - 32))
    return trace.steps()[next(place for place, row in enumerate(rows) if row.batch == nearest) - 1]


def _rests_on(priced: PricedTrace, window: slice) -> tuple[dict[str, float], float]:
    """Part of a step's device time by origin of its prices, and the relative uncertainty."""
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
