"""What a step takes, from captured steps of vLLM: fitted batches, what lies between them, and the error of that.

A step's device time is that of its tokens (everything but attention and logits), of its sampled rows (logits and
sampling), and of its attention. The first two are taken from captured batches and interpolated. Attention is priced for
the true lengths, because a capture knows only the longest one of a batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.engines.engine import StepTimes
from presim.serving.serving_plan import ServingPlan, graph_sizes
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.times import PricedEngine, build, with_drafter, with_messages

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
    experts_ns: float = 0.0  # of that, routed experts and the collective behind them
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
class CapturedSteps:
    """All captured batches of an engine on a cluster."""

    samples: tuple[Sample, ...]
    origins: dict[str, float]  # part of a decoding step's device time by origin of its prices
    uncertainty: float
    source: str  # what was captured, in words
    blocks: int | None = None  # of the KV cache, as vLLM sized it on this GPU; None: captured on another


@dataclasses.dataclass(frozen=True)
class CapturedBatch:
    """A batch as captured, and what the tables say of it; device times in ns."""

    sample: Sample
    captured_ns: float
    interpolated_ns: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.interpolated_ns / self.captured_ns - 1


def with_captured(engine: PricedEngine, captured: CapturedSteps) -> PricedEngine:
    """The engine with steps as captured; its result says so, with the error on batches that were held out."""
    fitted = [sample for sample in captured.samples if not sample.held_out]
    overheads = host_of(fitted, engine.overheads, captured.source)
    padded = graph_sizes(engine.plan, engine.cluster.gpu.architecture == "blackwell")
    times = with_drafter(engine, tables(fitted, engine.plan, engine.times, overheads, padded))
    times = with_messages(engine, times)
    held_out_checks = [checked for checked in checks(_target(engine), captured) if checked.sample.held_out]
    wrong = np.abs([checked.error for checked in held_out_checks]) if held_out_checks else np.zeros(1)
    summary: dict[str, str | int | float] = {
        "source": captured.source + _composed_parts(engine.plan, _shares_experts(engine.times)),
        "fitted_batches": len(fitted),
        "held_out_batches": len(held_out_checks),
        "held_out_median_error": float(np.median(wrong)),
        "held_out_largest_error": float(wrong.max()),
    }
    width = float(np.hypot(captured.uncertainty, np.median(wrong)))
    has_blocks = captured.blocks is not None and engine.plan.pp == 1  # of a stage alone, there is room for more
    engine = _with_blocks(engine, captured.blocks or 0) if has_blocks else engine
    return dataclasses.replace(
        engine, times=times, origins=captured.origins, uncertainty=width, overheads=overheads, steps=summary
    )


def _composed_parts(plan: ServingPlan, shared: bool) -> str:
    """What captured steps have from elsewhere, in words."""
    stages = f", one of {plan.pp} stages, messages between them composed" if plan.pp > 1 else ""
    experts = f", the experts that {plan.dp} data-parallel ranks share and their exchange composed" if shared else ""
    return stages + experts + (", the drafter's passes composed" if plan.drafting else "")


def _target(engine: PricedEngine) -> PricedEngine:
    """The engine without its drafter, whose passes no captured step has."""
    if engine.plan.drafting is None:
        return engine
    plan = dataclasses.replace(engine.plan, drafting=None)
    return build(engine.model, plan, engine.cluster, engine.overheads, engine.prices)


def _with_blocks(engine: PricedEngine, blocks: int) -> PricedEngine:
    """The engine with the KV cache that vLLM measured room for, unless its size is given."""
    if engine.plan.num_gpu_blocks is not None:
        return engine
    return dataclasses.replace(
        engine,
        memory=dataclasses.replace(engine.memory, blocks=blocks),
        limits=dataclasses.replace(engine.limits, num_gpu_blocks=blocks),
    )


def checks(engine: PricedEngine, captured: CapturedSteps) -> list[CapturedBatch]:
    """Each batch beside what is interpolated for it."""
    fitted = [sample for sample in captured.samples if not sample.held_out]
    padded = graph_sizes(engine.plan, engine.cluster.gpu.architecture == "blackwell")
    times = tables(fitted, engine.plan, engine.times, engine.overheads, padded)
    return [check(sample, times, engine.times, engine.overheads.step_scale) for sample in captured.samples]


def check(sample: Sample, times: StepTimes, composed: StepTimes, scale: float = 1.0) -> CapturedBatch:
    """Hold a batch against tables. Where it was captured with other lengths, its attention is as composed.

    Of experts that data-parallel ranks share neither side has anything.
    """
    captured_ns, shares = sample.waits_ns * scale, _shares_experts(composed)
    if shares or not sample.attention_exact:
        correction_ns = attention_of(sample, composed) - (sample.attention_ns + shares * sample.experts_ns) * scale
        captured_ns = max(sample.device_ns * scale + correction_ns, sample.launch_ns)
    times = dataclasses.replace(times, shared_ns=np.zeros(1))
    return CapturedBatch(sample, captured_ns, times.step_ns(list(sample.prefills), list(sample.decodes)))


def tables(
    fitted: Sequence[Sample], plan: ServingPlan, composed: StepTimes, overheads: Overheads, padded: tuple[int, ...]
) -> StepTimes:
    """Times by tokens and by sampled rows, and of launches; attention as composed."""
    decodes = sorted((sample for sample in fitted if not sample.prefills), key=lambda sample: sample.rows)
    prompts = sorted((sample for sample in fitted if not sample.decodes), key=lambda sample: sample.tokens)
    if not decodes or not prompts:
        raise InputError("captured steps have decodes and prompts; capture them with --steps captured")
    scale, count = overheads.step_scale, len(composed.token_ns)
    shares = _shares_experts(composed)
    points = {
        sample.tokens: _busy_ns(sample, shares) for sample in (*prompts, *decodes)
    }  # decodes where both are of one size
    return dataclasses.replace(
        composed,
        token_ns=_by_tokens(points, plan.max_num_batched_tokens, padded) * scale + composed.attention_fixed_ns,
        head_ns=_by_rows(decodes, len(composed.head_ns)) * scale,
        prompt_launch_ns=_launches(prompts, padded, count),
        decode_launch_ns=_launches(decodes, padded, count),
        host_ns=overheads.host_us * 1e3,
        host_seq_ns=overheads.host_sequence_us * 1e3,
        back_ns=overheads.back_us * 1e3,
        back_seq_ns=overheads.back_sequence_us * 1e3,
    )


def _shares_experts(composed: StepTimes) -> bool:
    """Whether data-parallel ranks share experts, so that their time is that of the tokens of all."""
    return len(composed.shared_ns) > 1 and bool(composed.shared_ns.any())


def _busy_ns(sample: Sample, shares: bool) -> float:
    """Device time of all but logits, attention, and experts that data-parallel ranks share."""
    other_ns = sample.head_ns + sample.attention_ns + shares * sample.experts_ns
    return max(sample.device_ns - other_ns, 0.0)


def _launches(kind: Sequence[Sample], padded: tuple[int, ...], count: int) -> Floats:
    """Host time of a step's launches by tokens: batches of a kind launch equally many kernels, so it is their median.

    Up to the largest CUDA graph there are fewer.
    """
    graphs = [sample.launch_ns for sample in kind if padded and sample.tokens <= padded[-1]]
    single = [sample.launch_ns for sample in kind if not padded or sample.tokens > padded[-1]]
    within, above_graphs = (float(np.median(times or single or graphs)) for times in (graphs, single))
    return np.where(np.arange(count) <= (padded[-1] if padded else -1), within, above_graphs)


def _by_tokens(points: dict[int, float], max_tokens: int, padded: tuple[int, ...]) -> Floats:
    """Straight between the points; a step is padded to the next CUDA graph's size."""
    sizes, tokens = sorted(points), np.arange(max_tokens + 1)
    table = np.interp(tokens, sizes, [points[size] for size in sizes])
    if padded:
        within = tokens <= padded[-1]
        upper = np.array(padded)[np.searchsorted(padded, tokens[within])]
        table[within] = table[np.minimum(upper, max_tokens)]
    return table


def _by_rows(decodes: Sequence[Sample], count: int) -> Floats:
    """Logits and sampling: straight between the batches, and on from the last two."""
    row_counts, times = [sample.rows for sample in decodes], [sample.head_ns for sample in decodes]
    rows = np.arange(count)
    table = np.interp(rows, row_counts, times)
    if len(row_counts) > 1:
        slope = (times[-1] - times[-2]) / (row_counts[-1] - row_counts[-2])
        table = np.where(rows > row_counts[-1], times[-1] + slope * (rows - row_counts[-1]), table)
    return table


def attention_of(sample: Sample, composed: StepTimes) -> float:
    """ns of attention with the true lengths."""
    tokens, rows = np.full_like(composed.token_ns, composed.attention_fixed_ns), np.zeros_like(composed.head_ns)
    attention_only = dataclasses.replace(composed, token_ns=tokens, head_ns=rows, shared_ns=np.zeros(1))
    attention_only = dataclasses.replace(attention_only, prompt_launch_ns=None, decode_launch_ns=None)
    return attention_only.step_ns(list(sample.prefills), list(sample.decodes))


def host_of(fitted: Sequence[Sample], overheads: Overheads, source: str) -> Overheads:
    """Host time before and after a step, as a line over the sequences of decoding batches."""
    decodes = [sample for sample in fitted if not sample.prefills]
    host, host_sequence = _line([(sample.rows, sample.prepare_ns) for sample in decodes])
    back, back_sequence = _line([(sample.rows, sample.finish_ns) for sample in decodes])
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
    x = np.array([x_value for x_value, _ in points], float)
    y = np.maximum([value for _, value in points], 1.0)
    if len(set(x)) < 2:
        return float(y.mean()), 0.0
    slope, start = np.polyfit(x, y, 1, w=1 / y)
    if slope < 0:
        return float(np.median(y)), 0.0
    if start < 0:
        return 0.0, float(np.median(y / x))
    return float(start), float(slope)
