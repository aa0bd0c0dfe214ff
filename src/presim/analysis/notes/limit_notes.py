"""Sentences about what limits a step, each with its number and an upper bound of the gain."""

from __future__ import annotations

import dataclasses

from presim.analysis.notes.provenance import critical_by_signature
from presim.analysis.time.breakdown import Breakdown, Instant, is_transfer
from presim.analysis.time.loading import DataLoading, data_loading
from presim.analysis.time.steps import Step, TraceSteps
from presim.cost.price import PricedTrace
from presim.engine.calls import TYPICAL_CALLS
from presim.engine.timeline import Timeline
from presim.result import Collective as CollectiveRow
from presim.result import Flops, Limit
from presim.trace.schema import Phase
from presim.trace.signatures import Collective, family
from presim.units import gib, percent, seconds

SMALLEST_SHARE = 0.01  # smaller shares of the step are not reported

_BOUND_NAMES = {"compute": "compute", "memory": "memory_bandwidth", "latency": "latency"}


@dataclasses.dataclass(frozen=True)
class _Bound:
    """Critical compute time with one bound, by signature family, ns."""

    total: float
    families: dict[str, float]

    def leading(self) -> str:
        """The three largest families, with their shares."""
        ranked = sorted(self.families.items(), key=lambda item: (-item[1], item[0]))[:3]
        return ", ".join(f"{name} {percent(value / self.total)}" for name, value in ranked)


def find_limits(
    priced: PricedTrace,
    timeline: Timeline,
    breakdown: Breakdown,
    steps: TraceSteps,
    collectives: list[CollectiveRow],
    flops: Flops,
    headroom_bytes: int,
) -> list[Limit]:
    """What the step time is spent on and what would reduce it, largest first.

    ``headroom_bytes``: free memory at the peak, for advice that costs memory.
    """
    step_ns = max(steps.steady.duration_ns, 1)
    loading = data_loading(priced.trace, timeline, breakdown, steps)
    candidates = [
        *_kernel_limits(priced, breakdown, step_ns, flops),
        _communication(breakdown, step_ns, collectives),
        _contention(breakdown, step_ns),
        _ports(breakdown, step_ns),
        _host(breakdown, step_ns, loading.in_step_ns),
        _data_loading(loading),
        _memory_calls(priced, breakdown, steps.steady, step_ns),
        _copies(breakdown, step_ns),
        _recomputation(priced, breakdown, step_ns, headroom_bytes),
    ]
    return sorted(
        (limit for limit in candidates if limit and limit.share >= SMALLEST_SHARE), key=lambda limit: -limit.seconds
    )


def _limit(name: str, nanoseconds: float, step_ns: int, statement: str, advice: str) -> Limit:
    share = nanoseconds / step_ns
    figures = f"{percent(share)} of the step ({seconds(nanoseconds / 1e9)})"
    return Limit(name, nanoseconds / 1e9, share, statement.replace("{figures}", figures), advice)


def _kernel_limits(priced: PricedTrace, breakdown: Breakdown, step_ns: int, flops: Flops) -> list[Limit]:
    texts = {
        "compute": (
            "Arithmetic limits {figures}",
            "Only fewer or cheaper FLOPs help: less recomputation, FP8 where the model allows it, or more GPUs.",
        ),
        "memory": (
            "Memory bandwidth limits {figures}",
            "Fused kernels save most of this (torch.compile, fused optimizers, norms and losses).",
        ),
        "latency": (
            "Kernels too small to fill the GPU take {figures}",
            "Larger micro-batches or fused kernels would reduce this.",
        ),
    }
    limits = []
    for bound, total in sorted(_bounds(priced, breakdown).items()):
        statement, advice = texts.get(bound, ("Kernels with an unknown bottleneck take {figures}", ""))
        rate = _flop_rate(flops, total.total) if bound == "compute" else ""
        name = _BOUND_NAMES.get(bound, "unknown")
        limits.append(_limit(name, total.total, step_ns, f"{statement}{rate}: {total.leading()}.", advice))
    return limits


def _flop_rate(flops: Flops, nanoseconds: float) -> str:
    """The FLOP rate of the compute-bound time, and its share of the peak."""
    if not flops.peak_per_s:
        return ""
    rate = flops.executed / (nanoseconds / 1e9)
    return f", at {rate / 1e12:.0f} TFLOP/s or {percent(rate / flops.peak_per_s)} of the {flops.dtype} peak"


def _bounds(priced: PricedTrace, breakdown: Breakdown) -> dict[str, _Bound]:
    """Critical time of kernels by what bounds them."""
    sums: dict[str, dict[str, float]] = {}
    for signature, price, spent in zip(
        priced.trace.signatures, priced.prices, critical_by_signature(priced, breakdown)
    ):
        if spent and not isinstance(signature, Collective) and not is_transfer(signature):
            families = sums.setdefault(price.bound, {})
            families[family(signature)] = families.get(family(signature), 0.0) + spent
    return {bound: _Bound(sum(families.values()), families) for bound, families in sums.items()}


def _communication(breakdown: Breakdown, step_ns: int, collectives: list[CollectiveRow]) -> Limit | None:
    moving, waiting = breakdown.spent_ns[Instant.EXPOSED_COMMUNICATION], breakdown.spent_ns[Instant.WAITING]
    exposed = moving + waiting
    if not exposed or not collectives:
        return None
    worst = collectives[0]
    hidden = 1 - moving / max(breakdown.communication_ns, 1)
    statement = (
        f"The compute stream waits {{figures}} for communication ({percent(hidden)} of all communication is hidden"
        f"{f', {seconds(waiting / 1e9)} is waiting for other ranks' if waiting else ''}); "
        f"{seconds(worst.exposed_s)} of that is {worst.kind} in group {worst.group} "
        f"({worst.group_size} ranks, {gib(worst.bytes)} in {worst.count} calls)."
    )
    remedy = "prefetch further ahead, larger buckets, more micro-batches per exchange, or a smaller group within a node"
    if waiting > moving:
        remedy = "balance the work between ranks, or use more micro-batches"
    advice = f"If all communication were hidden, the step would take {seconds((step_ns - exposed) / 1e9)}: {remedy}."
    return _limit("communication", exposed, step_ns, statement, advice)


def _contention(breakdown: Breakdown, step_ns: int) -> Limit | None:
    statement = "Overlapping kernels and collectives slow each other down by {figures} (part of the figures above)."
    advice = (
        "Fewer NCCL channels (NCCL_MAX_NCHANNELS) leave more of the GPU to compute while communication is hidden; "
        "--no-contention shows the step without contention."
    )
    return _limit("contention", breakdown.contention_ns - breakdown.ports_ns, step_ns, statement, advice)


def _ports(breakdown: Breakdown, step_ns: int) -> Limit | None:
    statement = (
        "Process groups that share ports of a node or links of the fabric add {figures} (part of the figures above)."
    )
    advice = (
        "More ports per node, fewer groups that use the network at the same time, or hierarchical collectives, which "
        "reduce within the node first."
    )
    return _limit("ports", breakdown.ports_ns, step_ns, statement, advice)


def _host(breakdown: Breakdown, step_ns: int, loading_ns: int) -> Limit | None:
    bound = breakdown.spent_ns[Instant.HOST_BOUND] - loading_ns
    advice = (
        f"With a faster host the step would take {seconds((step_ns - bound) / 1e9)} at best: CUDA graphs or "
        "torch.compile, fewer synchronisations (.item(), printing losses), larger micro-batches."
    )
    return _limit("host", bound, step_ns, "The device waits {figures} for the host to issue kernels.", advice)


def _data_loading(loading: DataLoading) -> Limit | None:
    """The mean over all repeated steps, because workers that are too slow often deliver several batches at once."""
    if not loading.mean_wait_ns:
        return None
    workers = f"{loading.workers} worker{'s' * (loading.workers > 1)} of the DataLoader"
    batch_s = seconds(loading.batch_ns / 1e9)
    share = loading.mean_wait_ns / max(loading.mean_step_ns, 1)
    statement = (
        f"The host waits {seconds(loading.mean_wait_ns / 1e9)} a step for data, {percent(share)} of the mean step: "
        f"{workers} take{'s' * (loading.workers == 1)} {batch_s} for each batch."
    )
    advice = "More workers (num_workers) as long as the node has cores, or less work for each sample."
    return Limit("data_loading", loading.mean_wait_ns / 1e9, share, statement, advice)


def _memory_calls(priced: PricedTrace, breakdown: Breakdown, step: Step, step_ns: int) -> Limit | None:
    spent = int(TYPICAL_CALLS.of_memory(priced.trace)[step.entries].sum())
    statement = (
        "The host spends {figures} on locking and unlocking pages, on cudaMalloc and cudaFree, and on the first use of "
        "memory (part of the figures above)."
    )
    advice = "Allocate pinned buffers once and reuse them; do not empty caches within the step."
    return _limit("memory calls", min(spent, breakdown.spent_ns[Instant.HOST_BOUND]), step_ns, statement, advice)


def _copies(breakdown: Breakdown, step_ns: int) -> Limit | None:
    exposed = breakdown.spent_ns[Instant.EXPOSED_COPY]
    statement = "The compute stream waits {figures} for copies and helper kernels on other streams."
    return _limit("copies", exposed, step_ns, statement, "Pinned memory with non_blocking=True lets copies overlap.")


def _recomputation(priced: PricedTrace, breakdown: Breakdown, step_ns: int, headroom_bytes: int) -> Limit | None:
    is_recomputed = priced.trace.columns["phase"] == Phase.RECOMPUTE
    spent = float(breakdown.critical_ns[is_recomputed].sum())
    statement = "Recomputing activations takes {figures} (part of the figures above)."
    room = f"{gib(headroom_bytes)} of memory are free" if headroom_bytes > 0 else "no memory is free"
    advice = f"Keeping more activations could save up to {seconds(spent / 1e9)}; {room}."
    return _limit("recomputation", spent, step_ns, statement, advice)
