"""Composes the trace of a training job from a graph and a plan: what `presim compose` does; nothing is run."""

from __future__ import annotations

import dataclasses

from presim.errors import InputError
from presim.graph.assemble import assemble
from presim.graph.blocks import Blocks, rounded
from presim.graph.hosts import HostTimes, host_times
from presim.graph.passes import attention, optimizer, recompute, tensor_parallel
from presim.graph.passes.fsdp2 import Fsdp2, shard_elements
from presim.graph.plan import Layout, Plan, check, layout
from presim.graph.rows import PRIORITIES, Rows, Tables
from presim.graph.schedule import Do, Key, Schedule, training_step
from presim.graph.schema import OperatorGraph
from presim.graph.units import elements, units
from presim.hardware.cluster import Cluster
from presim.trace.schema import Category, Group, Manifest, Phase, Trace

_TENSOR_HOSTS = (
    "With tensor parallelism host times are of a table of DTensor's launches that is too low: a step of Llama 3.1 8B "
    "on 128 H100 with tensor = 8, which waits for its host, is composed 0.16 s shorter than captured. Capture such a "
    "plan with `presim run`."
)
_WORKSPACE = {True: 32 << 20, False: 8_519_680}  # of cuBLAS, from Hopper on (ATen/cuda/CublasHandlePool.cpp)


@dataclasses.dataclass(frozen=True)
class Composed:
    """Traces, and which other ranks each of them stands for."""

    traces: tuple[Trace, ...]
    stands_for: dict[int, tuple[int, ...]]
    notes: tuple[str, ...] = ()


def compose(graph: OperatorGraph, plan: Plan, cluster: Cluster) -> Composed:
    """The trace of rank 0, which stands for all others.

    Raises:
        InputError: the plan cannot be.
    """
    check(plan, cluster.world_size)
    blocks = any(segment.name for segment in graph.segments)
    if not blocks and plan.recompute != "none":
        raise InputError(
            f"{graph.model} has no list of equal blocks that could be recomputed; use --recompute none, or capture the "
            "program with `presim run`"
        )
    trace = _rank(graph, plan, cluster, layout(plan, cluster.world_size))
    notes = [_TENSOR_HOSTS] if plan.tensor > 1 else []
    if not blocks:
        notes.append(f"{graph.model} has no list of equal blocks: FSDP2 gathers all of its parameters at once.")
    return Composed((trace,), {0: tuple(range(1, cluster.world_size))}, tuple(notes))


def _rank(graph: OperatorGraph, plan: Plan, cluster: Cluster, place: Layout) -> Trace:
    tables, hosts = Tables(), host_times(plan.style or ("dtensor" if plan.tensor > 1 else "eager"))
    graph = attention.apply(tensor_parallel.apply(graph, plan.tensor), _backend(plan, cluster))
    groups = _groups(place)
    ranks = len(place.data)
    schedule: Schedule = training_step(graph)
    if plan.recompute == "full":
        schedule = recompute.apply(schedule, graph)
    schedule = Fsdp2(graph, ranks, 0, plan.reshard, tables, hosts).apply(schedule)
    held = _held(graph, ranks)
    named = {group.name: index for index, group in enumerate(groups)}
    clipped = [index for index, group in enumerate(groups) if group.size > 1]
    blocks = Blocks(graph, plan.micro_batch, plan.sequence, tables, hosts, named)
    steps = []
    for first in (True, False):
        end = optimizer.end_of_step(
            held,
            adamw=plan.optimizer == "adamw",
            clip=plan.clip,
            first=first,
            groups=clipped,
            tables=tables,
            hosts=hosts,
        )
        steps.append((*schedule, *end))
    placed = [blocks.place(step) for step in steps]
    setup = blocks.place((_setup(held, cluster, tables, hosts),))
    return assemble(setup, placed, tables, _manifest(graph, plan, cluster, place, groups), graph.root)


def _backend(plan: Plan, cluster: Cluster) -> str:
    """PyTorch's first choice for causal attention in 16 bits."""
    if plan.attention != "auto":
        return plan.attention
    return "cudnn" if cluster.gpu.compute_major >= 9 else "flash"


def _groups(place: Layout) -> list[Group]:
    return [Group(name, ranks, len(ranks)) for name, ranks in (("data", place.data), ("tensor", place.tensor))]


def _held(graph: OperatorGraph, ranks: int) -> list[optimizer.Held]:
    found = []
    for unit in units(graph):
        shards = tuple(shard_elements(parameter, ranks) for parameter in unit.parameters)
        key: Key = ("reduce", "shard", unit.name)
        found.append(optimizer.Held(unit.name, key, rounded(sum(shards) * 4), True, shards))
    return found


def _setup(held: list[optimizer.Held], cluster: Cluster, tables: Tables, hosts: HostTimes) -> Do:
    """Parameters in fp32, and cuBLAS' workspaces of the forward and the backward thread; they stay."""
    rows = Rows(tables, hosts, Phase.OTHER)
    for thread in ("forward", "backward"):
        rows.alloc(f"workspace {thread}", _WORKSPACE[cluster.gpu.compute_major >= 9], Category.OTHER)
    for elements_ in (shard for one in held for shard in one.shards):
        rows.alloc(str(len(rows)), rounded(elements_ * 4), Category.PARAMETER)
    template = rows.template()
    return Do(template, tuple(("held", slot) for slot in template.slots))


def _manifest(graph: OperatorGraph, plan: Plan, cluster: Cluster, place: Layout, groups: list[Group]) -> Manifest:
    local = sum(elements(parameter) for unit in units(graph) for parameter in unit.parameters)
    gpu = cluster.gpu
    return Manifest(
        world_size=place.world_size,
        rank=0,
        gpu=gpu.id,
        gpus_per_node=cluster.gpus_per_node,
        script=f"composed from {graph.model}",
        groups=tuple(groups),
        versions=dict(graph.versions),
        stream_priorities=PRIORITIES,
        device_total_bytes=gpu.memory_bytes,
        memory_capacity_bytes=gpu.memory_bytes - gpu.context_bytes,
        context_bytes=gpu.context_bytes,
        batch={"tokens": plan.micro_batch * plan.sequence, "samples": plan.micro_batch},
        model={"parameters": graph.parameter_count(), "parameters_local": local // len(place.data)},
        reference_host=True,
        node=cluster.node.id,
        fabric=cluster.fabric.id,
    )
