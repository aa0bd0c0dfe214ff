"""Composes the traces of a training job from a graph and a plan: what `presim compose` does, without running anything."""

from __future__ import annotations

import dataclasses

from presim.graph.assemble import assemble
from presim.graph.blocks import Blocks, rounded
from presim.graph.hosts import HostTimes, host_times
from presim.graph.passes import optimizer, recompute, tensor_parallel
from presim.graph.passes.fsdp2 import Fsdp2, shard_elements
from presim.graph.plan import Layout, Plan, check, layout
from presim.graph.rows import PRIORITIES, Rows, Tables
from presim.graph.schedule import Do, Key, Schedule, training_step
from presim.graph.schema import OperatorGraph
from presim.graph.units import elements, units
from presim.hardware.cluster import Cluster
from presim.trace.schema import Category, Group, Manifest, Phase, Trace


_WORKSPACE = {True: 32 << 20, False: 8_519_680}  # of cuBLAS, from Hopper on (ATen/cuda/CublasHandlePool.cpp)


@dataclasses.dataclass(frozen=True)
class Composed:
    """Traces, and which other ranks each of them stands for."""

    traces: tuple[Trace, ...]
    stands_for: dict[int, tuple[int, ...]]
    notes: tuple[str, ...] = ()


def compose(graph: OperatorGraph, plan: Plan, cluster: Cluster) -> Composed:
    """The traces of one rank of each pipeline stage.

    Raises:
        InputError: the plan cannot be.
    """
    check(plan, graph, cluster.world_size)
    place = layout(plan, cluster.world_size, 0)
    trace = _rank(graph, plan, cluster, place)
    return Composed((trace,), {0: tuple(range(1, cluster.world_size))})


def _rank(graph: OperatorGraph, plan: Plan, cluster: Cluster, place: Layout) -> Trace:
    tables, hosts = Tables(), host_times(plan.style or ("dtensor" if plan.tensor > 1 else "eager"))
    graph = tensor_parallel.apply(graph, plan.tensor)
    groups = _groups(place)
    ranks = len(place.data)
    schedule: Schedule = training_step(graph)
    if plan.recompute == "full":
        schedule = recompute.apply(schedule, graph)
    sharded = plan.sharding == "fsdp2"
    if sharded:
        schedule = Fsdp2(graph, ranks, 0, plan.reshard, tables, hosts).apply(schedule)
    held = _held(graph, ranks if sharded else 1)
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


def _groups(place: Layout) -> list[Group]:
    return [
        Group(name, ranks, len(ranks))
        for name, ranks in (("data", place.data), ("tensor", place.tensor), ("pipeline", place.pipeline))
    ]


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
        rank=place.rank,
        gpu=gpu.id,
        gpus_per_node=cluster.gpus_per_node,
        script=f"composed from {graph.model}",
        groups=tuple(groups),
        versions=dict(graph.versions),
        stream_priorities=PRIORITIES,
        device_total_bytes=gpu.memory_bytes,
        memory_capacity_bytes=gpu.memory_bytes - gpu.context_bytes,
        context_bytes=gpu.context_bytes,
        batch={
            "tokens": plan.micro_batch * plan.micro_batches * plan.sequence,
            "samples": plan.micro_batch * plan.micro_batches,
        },
        model={"parameters": graph.parameter_count(), "parameters_local": local // len(place.data)},
        reference_host=True,
        node=cluster.node.id,
        fabric=cluster.fabric.id,
    )
