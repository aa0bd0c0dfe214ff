"""What a step takes, from captured steps of vLLM: fitted batches, what lies between them, and the error of that.

A step's device time is that of its tokens (everything but attention and logits), of its sampled rows (logits and
sampling), and of its attention. The first two are taken from captured batches and interpolated. Attention is priced for
the true lengths, because a capture knows only the longest one of a batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.engines.engine import StepTimes
from presim.serving.plan import Plan, graph_sizes
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.times import Engine

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Sample:
    """One captured batch; times in ns, of a step that waits for its output."""

    decodes: tuple[int, ...]  # keys of each, its own among them
    prefills: tuple[tuple[int, int], ...]  # queries and keys of each chunk
    held_out: bool
    prepare_ns: float  # host: scheduling and inputs, until the model's first kernel
    launch_ns: float  # host: from that kernel's launch to the last one's
    waits_ns: float  # from the model's first kernel until the sampled tokens are on the host, waits for launches in it
    device_ns: float  # the same without waits for launches
    head_ns: float  # of that, from the logits on
    attention_ns: float  # of that, attention as captured: every sequence as long as the longest
    finish_ns: float  # host: the scheduler takes the tokens in
    attention_exact: bool = True  # whether it was captured with the true lengths; CUDA graphs have the longest allowed

    @property
    def tokens(self) -> int:
        """Tokens that the step processes."""
        return len(self.decodes) + sum(queries for queries, _ in self.prefills)

    @property
    def rows(self) -> int:
        """Sequences of which it samples a token."""
        return len(self.decodes) + len(self.prefills)


@dataclasses.dataclass(frozen=True)
class Captured:
    """All captured batches of an engine on a cluster."""

    samples: tuple[Sample, ...]
    origins: dict[str, float]  # part of a decoding step's device time by origin of its prices
    uncertainty: float
    source: str  # what was captured, in words
    blocks: int | None = None  # of the KV cache, as vLLM sized it on this GPU; None: captured on another


@dataclasses.dataclass(frozen=True)
class Check:
    """A batch as captured, and what the tables say of it; device times in ns."""

    sample: Sample
    captured_ns: float
    interpolated_ns: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.interpolated_ns / self.captured_ns - 1


def with_captured(engine: Engine, captured: Captured) -> Engine:
    """The engine with steps as captured; its result says so, with the error on batches that were held out."""
    fitted = [sample for sample in captured.samples if not sample.held_out]
    overheads = host_of(fitted, engine.overheads, captured.source)
    blackwell = engine.cluster.gpu.architecture == "blackwell"
    times = tables(fitted, engine.plan, engine.times, overheads, graph_sizes(engine.plan, blackwell))
    found = [check(sample, times, overheads.step_scale) for sample in captured.samples if sample.held_out]
    wrong = np.abs([one.error for one in found]) if found else np.zeros(1)
    said: dict[str, str | int | float] = {
        "source": captured.source,
        "fitted_batches": len(fitted),
        "held_out_batches": len(found),
        "held_out_median_error": float(np.median(wrong)),
        "held_out_largest_error": float(wrong.max()),
    }
    width = float(np.hypot(captured.uncertainty, np.median(wrong)))
    engine = _with_blocks(engine, captured.blocks) if captured.blocks else engine
    return dataclasses.replace(
        engine, times=times, origins=captured.origins, uncertainty=width, overheads=overheads, steps=said
    )


def _with_blocks(engine: Engine, blocks: int) -> Engine:
    """The engine with the KV cache that vLLM measured room for, unless its size is given."""
    if engine.plan.num_gpu_blocks is not None:
        return engine
    return dataclasses.replace(
        engine,
        memory=dataclasses.replace(engine.memory, blocks=blocks),
        limits=dataclasses.replace(engine.limits, num_gpu_blocks=blocks),
    )


def check(sample: Sample, times: StepTimes, scale: float = 1.0) -> Check:
    """Hold a batch against the tables; attention of other lengths than captured is as in the tables on both sides."""
    attention = attention_of(sample, times)
    here = sample.waits_ns * scale
    if not sample.attention_exact:
        here = max(sample.device_ns * scale + attention - sample.attention_ns * scale, sample.launch_ns)
    return Check(sample, here, times.step_ns(list(sample.prefills), list(sample.decodes)))


def tables(
    fitted: Sequence[Sample], plan: Plan, composed: StepTimes, overheads: Overheads, padded: tuple[int, ...]
) -> StepTimes:
    """Times by tokens and by sampled rows; attention as composed."""
    decodes = sorted((one for one in fitted if not one.prefills), key=lambda one: one.rows)
    prompts = sorted((one for one in fitted if not one.decodes), key=lambda one: one.tokens)
    if not decodes or not prompts:
        raise InputError("captured steps have decodes and prompts; capture them with --steps captured")
    most, sequences = plan.max_num_batched_tokens, plan.max_num_seqs
    rows = np.arange(len(composed.head_ns))
    head = np.interp(rows, [one.rows for one in decodes], [one.head_ns for one in decodes])
    largest = decodes[-1].rows
    if sequences > largest and len(decodes) > 1:
        slope = (decodes[-1].head_ns - decodes[-2].head_ns) / (largest - decodes[-2].rows)
        head[rows > largest] += slope * (rows[rows > largest] - largest)
    points = {}
    for kind in (prompts, decodes):
        launches = float(np.median([one.launch_ns for one in kind]))
        points |= {one.tokens: _without_attention(one, launches, overheads, plan, composed) for one in kind}
    known = sorted(points)
    tokens = np.arange(most + 1)
    table = np.interp(tokens, known, [points[size] for size in known])
    if padded:
        within = tokens <= padded[-1]
        upper = np.array(padded)[np.searchsorted(padded, tokens[within])]
        table[within] = table[np.minimum(upper, most)]
    scale = overheads.step_scale
    return dataclasses.replace(
        composed,
        token_ns=table * scale,
        head_ns=head * scale,
        host_ns=overheads.host_us * 1e3,
        host_seq_ns=overheads.host_sequence_us * 1e3,
        back_ns=overheads.back_us * 1e3,
        back_seq_ns=overheads.back_sequence_us * 1e3,
    )


def _without_attention(
    sample: Sample, launches_ns: float, overheads: Overheads, plan: Plan, composed: StepTimes
) -> float:
    """What is left of a step for its tokens.

    A step takes at least the launches of its kernels, which are as many in each batch of a kind. With asynchronous
    scheduling, the host also prepares a step while the device runs the one before it: a step takes at least what the
    host does for it.
    """
    least = launches_ns
    if plan.async_scheduling:
        host = overheads.host_us + overheads.back_us
        least += (host + (overheads.host_sequence_us + overheads.back_sequence_us) * sample.rows) * 1e3
    attention = attention_of(sample, composed) / overheads.step_scale
    busy = sample.device_ns - sample.head_ns - sample.attention_ns
    return max(busy, least - sample.head_ns - attention, 0.0)


def attention_of(sample: Sample, times: StepTimes) -> float:
    """ns of attention with the true lengths, by the tables."""
    nothing: dict[str, Any] = {"token_ns": np.zeros_like(times.token_ns), "head_ns": np.zeros_like(times.head_ns)}
    return dataclasses.replace(times, **nothing).step_ns(list(sample.prefills), list(sample.decodes))


def host_of(fitted: Sequence[Sample], overheads: Overheads, source: str) -> Overheads:
    """Host time before and after a step, as a line over the sequences of decoding batches."""
    decodes = [one for one in fitted if not one.prefills]
    host, host_sequence = _line([(one.rows, one.prepare_ns) for one in decodes])
    back, back_sequence = _line([(one.rows, one.finish_ns) for one in decodes])
    return dataclasses.replace(
        overheads,
        host_us=host / 1e3,
        host_sequence_us=host_sequence / 1e3,
        back_us=back / 1e3,
        back_sequence_us=back_sequence / 1e3,
        host_origin=source,
    )


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Value at none and slope, by least squares of relative errors; neither is negative."""
    x = np.array([one for one, _ in points], float)
    y = np.maximum([value for _, value in points], 1.0)
    if len(set(x)) < 2:
        return float(y.mean()), 0.0
    slope, start = np.polyfit(x, y, 1, w=1 / y)
    if slope < 0:
        return float(np.median(y)), 0.0
    if start < 0:
        return 0.0, float(np.median(y / x))
    return float(start), float(slope)
