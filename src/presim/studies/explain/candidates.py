"""Candidate changes: options of the simulation for a saved job, fields of the plan for a composed one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec

from presim.composition.plan import Plan
from presim.evaluation.options import EvaluationOptions
from presim.hardware.cluster import Cluster
from presim.result import Result

_MIN_SHARE = 0.02  # share of the step; smaller parts give no candidate
_POINTWISE = ("elementwise", "normalization", "reduction", "softmax", "copy", "index", "optimizer")
_NARROW = {"bfloat16": "float8_e4m3fn", "float16": "float8_e4m3fn"}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A change of the simulation."""

    description: str
    remedy: str
    kind: str  # bound or change
    options: str  # options of `presim simulate`
    changed: EvaluationOptions


def simulation_candidates(result: Result, cluster: Cluster, options: EvaluationOptions) -> Iterator[Candidate]:
    """Changes to simulate for a saved job: one or more for each part with a relevant share of the step."""
    time, step_s = result.time, result.step_time_s or 1.0
    if time.host_bound_s + time.idle_s > _MIN_SHARE * step_s:
        change = dataclasses.replace(options, host_time=False)
        yield Candidate("no host time", "CUDA graphs for the whole step", "bound", "--host-time 0", change)
        factor = result_host_factor(options, cluster) / 2
        change = dataclasses.replace(options, host_factor=factor)
        remedy = "torch.compile, fewer and larger kernels, or faster cores"
        yield Candidate("half the host time", remedy, "change", f"--host-factor {factor:g}", change)
    yield from _communication(result, cluster, options)
    yield from _kernels(result, cluster, options)
    if time.contention_s > _MIN_SHARE * step_s:
        change = dataclasses.replace(options, contention=False)
        remedy = "fewer SMs for communication, copy engines, another order"
        yield Candidate("no contention of kernels with communication", remedy, "bound", "--no-contention", change)


def result_host_factor(options: EvaluationOptions, cluster: Cluster) -> float:
    """The host factor that the options and the cluster result in."""
    from presim.hardware.host import TYPICAL_FACTOR

    return options.host_factor or cluster.node.host_factor or TYPICAL_FACTOR


def _communication(result: Result, cluster: Cluster, options: EvaluationOptions) -> Iterator[Candidate]:
    if result.time.exposed_communication_s <= _MIN_SHARE * (result.step_time_s or 1.0):
        return
    free = [f"{kind}=0.001" for kind in sorted({row.kind for row in result.collectives if row.exposed_s > 0})]
    change = dataclasses.replace(options, scale_op=(*options.scale_op, *free))
    words = " ".join(f"--scale-op {scale}" for scale in free)
    yield Candidate("no time for communication", "perfect overlap, or none needed", "bound", words, change)
    links = [("inter", "network between nodes")] if cluster.nodes > 1 else []
    if cluster.gpu.nvlink_bytes_per_s and cluster.gpus_per_node > 1 and cluster.node.interconnect != "pcie":
        links.append(("intra", "NVLink"))
    for link, words in links:
        change = dataclasses.replace(options, bandwidth=(*options.bandwidth, f"{link}=2"))
        yield Candidate(
            f"twice the bandwidth of the {words}", "other hardware", "change", f"--bandwidth {link}=2", change
        )


def _kernels(result: Result, cluster: Cluster, options: EvaluationOptions) -> Iterator[Candidate]:
    step_s = result.step_time_s or 1.0
    for family in result.families:
        if family.name in _POINTWISE and family.critical_s > _MIN_SHARE * step_s:
            change = dataclasses.replace(options, scale_op=(*options.scale_op, f"{family.name}=0.5"))
            remedy = "fused kernels (torch.compile, Triton, Transformer Engine) that move half the bytes"
            yield Candidate(
                f"half the time of {family.name}", remedy, "change", f"--scale-op {family.name}=0.5", change
            )
    products = sum(family.critical_s for family in result.families if family.name in ("gemm", "grouped_gemm"))
    dtype = result.flops.dtype
    wide, narrow = cluster.gpu.peak(dtype), cluster.gpu.peak(_NARROW.get(dtype, ""))
    if wide and narrow and narrow > wide and products > _MIN_SHARE * step_s:
        product_families = [family.name for family in result.families if family.name in ("gemm", "grouped_gemm")]
        factors = [f"{name}={wide / narrow:.3g}" for name in product_families]
        change = dataclasses.replace(options, scale_op=(*options.scale_op, *factors))
        words = " ".join(f"--scale-op {scale}" for scale in factors)
        remedy = "FP8 for all products; casts, scaling and products in 16 bits reduce the gain"
        yield Candidate("products at the rate of FP8", remedy, "bound", words, change)


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """A plan that differs in one field."""

    description: str
    plan: Plan


def neighbour_plans(plan: Plan, cluster: Cluster) -> Iterator[Neighbour]:
    """Plans that differ in one field; `presim.composition.compose` decides whether they are valid."""
    fields: list[tuple[str, dict[str, object]]] = []
    for name, words in (
        ("micro_batch", "micro-batch"),
        ("tensor", "tensor-parallel ranks"),
        ("pipeline", "pipeline stages"),
        ("virtual", "pipeline stages per rank"),
    ):
        value = getattr(plan, name)
        if name == "virtual" and plan.pipeline == 1:
            continue
        fields.append((f"twice the {words} ({2 * value})", {name: 2 * value}))
        if value > 1 and value % 2 == 0:
            fields.append((f"half the {words} ({value // 2})", {name: value // 2}))
    opposite_recompute = {"none": "full", "full": "none"}
    if plan.recompute in opposite_recompute:
        description = "no recomputation" if plan.recompute == "full" else "recomputation of all blocks"
        fields.append((description, {"recompute": opposite_recompute[plan.recompute]}))
    if plan.data_style == "fsdp2":
        description = (
            "keep parameters after a block's forward" if plan.reshard else "free parameters after a block's forward"
        )
        fields.append((description, {"reshard": not plan.reshard}))
    for style in ("fsdp2", "ddp", "zero1"):
        if style != plan.data_style and plan.data(cluster.world_size) > 1:
            fields.append((f"data parallelism by {style}", {"data_style": style, "shard": 0}))
    for description, new_fields in fields:
        yield Neighbour(description, msgspec.structs.replace(plan, **new_fields))
