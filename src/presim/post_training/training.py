"""Times and memory of training steps of any micro-batch, from a few composed and simulated ones.

A micro-batch of packed sequences does work by its tokens (matrix products, norms, logits) and, in attention, by the sum
of its squared lengths. Steps are composed at a grid of tokens, each with one long sequence and with many short ones;
between grid points both parts are linear in the tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.composition.compose import compose
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.plan import Plan
from presim.engine.timeline import Timeline
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.hardware import Cluster
from presim.post_training.curves import Curve
from presim.post_training.logits import HeadSeconds, LogitsSeconds
from presim.result import Memory
from presim.trace.schema import Kind, Phase, Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PassKind: TypeAlias = Literal["update", "critic update", "old", "reference", "values"]
_PIECES = 64  # a sequence is a multiple of so many tokens for each rank that has a part of it
_TOKEN_SHARES = (1 / 8, 1 / 2, 1.0)  # grid, of the fullest micro-batch
_LOCKSTEP = ("fsdp2", "hsdp")  # data-parallel ranks meet in every micro-batch, as they gather parameters
_MESSAGES = ("send", "recv", "sendrecv")
# Evaluates a plan, whose global batch is set, on a pool by capturing a framework's own trainer.
EvaluatePlan: TypeAlias = Callable[[Plan, Cluster], Evaluation]
_NO_LOGITS, _NO_HEAD = LogitsSeconds(), HeadSeconds()
_LEAST_SHARE = 0.1  # of a pass without logits in one with them: a guard for tiny models


@dataclasses.dataclass(frozen=True)
class TrainingPrices:
    """Prices of a training pool."""

    plan: Plan
    data_ranks: int
    update: Curve  # forward, backward and recomputation of a micro-batch, on the stage that takes longest
    forward: Curve  # forward alone
    forward_fill_s: Curve  # of a micro-batch on all stages of the pipeline but one
    rest_s: float  # of an update: reduction of gradients, norm, optimizer, and the pipeline's fill and drain
    watts: float | None  # of a GPU in a step
    memory: Memory  # of an update with full micro-batches
    not_modelled: tuple[str, ...]
    logits: LogitsSeconds = _NO_LOGITS  # for each token of a micro-batch, beyond what composed steps have
    head: HeadSeconds = _NO_HEAD  # for each token, of what composed steps have

    def rank_seconds(self, kind: PassKind, tokens: Ints, squares: Ints) -> Floats:
        """Seconds of a pass over each of such micro-batches: [rank, micro-batch]."""
        floats = tokens.astype(float), squares.astype(float)
        seconds = (self.update if kind in ("update", "critic update") else self.forward).seconds(*floats)
        if kind in ("values", "critic update"):  # a number in place of logits
            head_s = self.head.forward_s if kind == "values" else self.head.update_s
            return np.maximum(seconds - head_s * floats[0], seconds * _LEAST_SHARE)
        logits_s = {"update": self.logits.update, "old": self.logits.old, "reference": self.logits.reference}[kind]
        return np.asarray(seconds + logits_s * floats[0])

    def waiting_s(self, kind: PassKind, tokens: Ints, squares: Ints) -> float:
        """Seconds in which an average rank waits for ranks whose micro-batches take longer."""
        seconds = self.rank_seconds(kind, tokens, squares)
        return max(self._of_ranks(seconds) - float(seconds.sum(axis=1).mean()), 0.0)

    def update_s(self, tokens: Ints, squares: Ints) -> float:
        """Seconds of an update whose micro-batches have these sizes: [rank, micro-batch]."""
        return self._of_ranks(self.rank_seconds("update", tokens, squares)) + self.rest_s

    def forward_s(self, tokens: Ints, squares: Ints, *, is_reference: bool = False) -> float:
        """Seconds of log-probabilities of such micro-batches."""
        floats = tokens.astype(float), squares.astype(float)
        fill = float(self.forward_fill_s.seconds(*floats).mean(axis=1).max()) if self.plan.pipeline > 1 else 0.0
        return self._of_ranks(self.rank_seconds("reference" if is_reference else "old", tokens, squares)) + fill

    def values_s(self, tokens: Ints, squares: Ints) -> float:
        """Seconds of a forward pass with one number in place of logits: of a critic or a reward model."""
        return self._of_ranks(self.rank_seconds("values", tokens, squares))

    def critic_update_s(self, tokens: Ints, squares: Ints) -> float:
        """Seconds of an update of a critic."""
        return self._of_ranks(self.rank_seconds("critic update", tokens, squares)) + self.rest_s

    def _of_ranks(self, seconds: Floats) -> float:
        """Seconds of all ranks for micro-batches of so many [rank, micro-batch]."""
        ranks, micro_batches = seconds.shape
        groups = seconds.reshape(-1, meeting_ranks(self.plan, ranks), micro_batches)
        return float(groups.max(axis=1).sum(axis=1).max())


def meeting_ranks(plan: Plan, ranks: int) -> int:
    """How many of the data-parallel ranks wait for each other in every micro-batch.

    FSDP's gather parameters together. Ranks that share experts exchange tokens in every layer; Megatron counts tensor-
    and context-parallel ranks among them.
    """
    if plan.data_style in _LOCKSTEP:
        return ranks
    meeting = plan.expert // (plan.tensor * plan.context)
    return meeting if meeting > 1 and ranks % meeting == 0 else 1


@dataclasses.dataclass(frozen=True)
class _Point:
    """A composed micro-batch."""

    squares: float
    update_s: float
    forward_s: float
    fill_s: float


def price_training(
    graph: OperatorGraph, plan: Plan, cluster: Cluster, update_tokens: int, forward_tokens: int, typical_length: int,
    progress: Callable[[str], None] = lambda text: None, framework: EvaluatePlan | None = None,
    check_memory: Callable[[Memory], None] = lambda memory: None,
) -> TrainingPrices:  # fmt: skip
    """Compose and simulate the grid of micro-batches on a pool of GPUs.

    ``update_tokens``: of the largest micro-batch of an update, whose memory counts; ``forward_tokens``: of
    log-probabilities. ``framework``: its step of full micro-batches takes the place of the composed one, and what the
    composed grid says of other micro-batches is scaled to it. ``check_memory`` is called with that of a full update
    before the grid is composed, and may raise.

    Raises:
        InputError: the plan is invalid for the model or the pool.
    """
    full, _ = _long_and_short(plan, update_tokens, typical_length)
    double, once = _pair(full, cluster, lambda fuller, pool: evaluate(compose(graph, fuller, pool), pool, brief=True))
    captured = _captured_pair(full, cluster, framework, progress)
    result = double.result
    check_memory((captured[0] if captured else double).result.memory)
    rest_s = _rest_s(double, once, plan.pipeline)
    full_step = once if _micro_batches(plan) == plan.pipeline else double
    counts = [int(update_tokens * share) for share in _TOKEN_SHARES]
    counts += [forward_tokens] if forward_tokens > update_tokens else []
    grid: list[tuple[int, _Point, _Point]] = []
    for tokens in counts:
        progress(f"composing micro-batches of {tokens:,} tokens")
        plans = _long_and_short(plan, tokens, typical_length)
        long, short = (
            _point(full_step if shape == full else _evaluated(graph, shape, cluster), shape, rest_s) for shape in plans
        )
        grid.append((plans[0].sequence, long, short))
    composed = TrainingPrices(
        plan=plan,
        data_ranks=plan.data(cluster.world_size),
        update=_curve(grid, "update_s"),
        forward=_curve(grid, "forward_s"),
        forward_fill_s=_curve(grid, "fill_s"),
        rest_s=rest_s,
        watts=result.energy.watts if result.energy else None,
        memory=result.memory,
        not_modelled=tuple(result.not_modelled),
    )
    if captured is None:
        return composed
    return _as_framework(composed, _point(full_step, full, rest_s), full, captured)


def _captured_pair(
    full: Plan, cluster: Cluster, framework: EvaluatePlan | None, progress: Callable[[str], None]
) -> tuple[Evaluation, Evaluation] | None:
    if framework is None:
        return None
    progress("capturing the framework's step")
    return _pair(full, cluster, framework)


def _as_framework(
    composed: TrainingPrices, full_point: _Point, full: Plan, captured: tuple[Evaluation, Evaluation]
) -> TrainingPrices:
    """The prices scaled to a framework's step of full micro-batches, and with its memory."""
    double, once = captured
    rest_s = _rest_s(double, once, full.pipeline)
    point = _point(once if _micro_batches(full) == full.pipeline else double, full, rest_s)
    forward = point.forward_s / full_point.forward_s
    result = double.result
    return dataclasses.replace(
        composed,
        update=composed.update.scaled(point.update_s / full_point.update_s),
        forward=composed.forward.scaled(forward),
        forward_fill_s=composed.forward_fill_s.scaled(forward),
        rest_s=rest_s,
        watts=result.energy.watts if result.energy else composed.watts,
        memory=result.memory,
        not_modelled=tuple(result.not_modelled),
    )


def _pair(full: Plan, cluster: Cluster, evaluate_plan: EvaluatePlan) -> tuple[Evaluation, Evaluation]:
    """Steps with twice as many micro-batches as stages, and with as many."""
    counts = (2 * full.pipeline, full.pipeline)
    double, once = (evaluate_plan(_with_micro_batches(full, cluster, count), cluster) for count in counts)
    return double, once


def _rest_s(double: Evaluation, once: Evaluation, stages: int) -> float:
    """What a step takes beyond its micro-batches."""
    slope_s = (_step_s(double) - _step_s(once)) / stages
    return max(_step_s(once) - slope_s * stages, 0.0)


def _with_micro_batches(plan: Plan, cluster: Cluster, count: int) -> Plan:
    return msgspec.structs.replace(plan, global_batch=plan.micro_batch * plan.data(cluster.world_size) * count)


def _long_and_short(plan: Plan, tokens: int, typical_length: int) -> tuple[Plan, Plan]:
    """Plans with micro-batches of the same number of tokens, about ``tokens``: one sequence, and typical ones."""
    step = _PIECES * plan.context * plan.tensor  # a sequence splits over the ranks that have parts of it
    length = max(min(typical_length, tokens // 2) // step, 1) * step
    count = max(tokens // length, 1)
    return (
        msgspec.structs.replace(plan, sequence=length * count, micro_batch=1),
        msgspec.structs.replace(plan, sequence=length, micro_batch=count),
    )


def _evaluated(graph: OperatorGraph, plan: Plan, cluster: Cluster) -> Evaluation:
    fuller = _with_micro_batches(plan, cluster, _micro_batches(plan))
    return evaluate(compose(graph, fuller, cluster), cluster, brief=True)


def _step_s(evaluation: Evaluation) -> float:
    return float(evaluation.result.step_time_s or 0.0)


def _micro_batches(plan: Plan) -> int:
    """Micro-batches of a step that shows a forward pass: a sharded optimizer gathers parameters in the first."""
    return plan.pipeline if plan.data_style in _LOCKSTEP else 2 * plan.pipeline


def _point(evaluation: Evaluation, plan: Plan, rest_s: float) -> _Point:
    count, by_window = _micro_batches(plan), plan.pipeline == 1
    forwards = [
        _forward_s(evaluation.ranks[rank].trace, timeline, by_window=by_window) / (1 if by_window else count)
        for rank, timeline in evaluation.timelines.items()
    ]
    update_s = max(_step_s(evaluation) - rest_s, 0.0) / count
    squares = float(plan.micro_batch) * plan.sequence**2
    return _Point(squares, update_s, max(forwards), sum(forwards) - max(forwards))


def forward_seconds(trace: Trace, timeline: Timeline) -> float:
    """Seconds of the last forward pass of a rank's last step, from its first kernel to the end of the last."""
    return _forward_s(trace, timeline, by_window=True)


def _forward_s(trace: Trace, timeline: Timeline, *, by_window: bool) -> float:
    """Seconds of the last forward pass; of a pipeline stage those of all, without what it waits for others."""
    step = trace.steps()[-1]
    is_forward = (trace.columns["phase"] == Phase.FORWARD) & trace.mask(Kind.WORK, Kind.COLLECTIVE)
    inside = np.zeros(len(trace), np.bool_)
    inside[step] = True
    entries = np.flatnonzero(is_forward & inside)
    if by_window:
        backward = np.flatnonzero((trace.columns["phase"] == Phase.BACKWARD) & inside)
        later = entries[entries > backward[0]] if len(backward) else entries[:0]
        entries = later if len(later) else entries
    else:
        numbers = trace.columns["signature"][entries]
        entries = entries[[getattr(trace.signatures[number], "kind", "") not in _MESSAGES for number in numbers]]
    start_times_ns, end_times_ns = timeline.start_ns[entries], timeline.end_ns[entries]
    if not len(entries):
        return 0.0
    return (
        float(end_times_ns.max() - start_times_ns.min()) / 1e9
        if by_window
        else _covered_s(start_times_ns, end_times_ns)
    )


def _covered_s(start_times_ns: NDArray[np.int64], end_times_ns: NDArray[np.int64]) -> float:
    """Seconds that some interval covers."""
    order = np.argsort(start_times_ns, kind="stable")
    start_times_ns, end_times_ns = start_times_ns[order], np.maximum.accumulate(end_times_ns[order])
    before = np.concatenate([start_times_ns[:1], end_times_ns[:-1]])
    return float(np.maximum(end_times_ns - np.maximum(start_times_ns, before), 0).sum()) / 1e9


def _curve(grid: Sequence[tuple[int, _Point, _Point]], figure: str) -> Curve:
    tokens, linear_s, quadratic_s = [], [], []
    for count, long, short in grid:
        seconds, squares = (getattr(long, figure), getattr(short, figure)), (long.squares, short.squares)
        slope = max((seconds[0] - seconds[1]) / (squares[0] - squares[1]), 0.0) if squares[0] > squares[1] else 0.0
        tokens.append(float(count))
        linear_s.append(max(seconds[1] - slope * squares[1], 0.0))
        quadratic_s.append(slope)
    return Curve(np.array(tokens), np.array(linear_s), np.array(quadratic_s))
