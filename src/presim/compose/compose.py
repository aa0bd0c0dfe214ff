"""Compose the trace of a training job from a graph and a plan, without running it (`presim compose`)."""

from __future__ import annotations

import dataclasses
import functools

import msgspec
import numpy as np

from presim.compose import stages
from presim.compose.all_memory import Lacks
from presim.compose.assemble import Assembled, assemble
from presim.compose.blocks import Blocks
from presim.compose.hosts import HostTimes, host_times
from presim.compose.names import Ints, Names
from presim.compose.orders import orders
from presim.compose.plan import Layout, Plan, check, layout
from presim.compose.roofline import roofline
from presim.compose.rows import PRIORITIES, Rows, Tables
from presim.compose.runtime import optimizer, recompute
from presim.compose.runtime.data_parallel import DataParallel
from presim.compose.runtime.ddp import Ddp
from presim.compose.runtime.fsdp2 import Fsdp2
from presim.compose.runtime.fsdp2_experts import ExpertFsdp2
from presim.compose.runtime.fsdp2_gathered import GatheredFsdp2
from presim.compose.runtime.pipeline import Pipeline
from presim.compose.runtime.zero1 import Zero1
from presim.compose.schedule import Do, Run
from presim.compose.units import Unit, separate_experts, units
from presim.errors import InputError
from presim.graph.schema import OperatorGraph
from presim.hardware.cluster import Cluster
from presim.passes import (
    attention,
    budget,
    compiled,
    context_parallel,
    expert_parallel,
    quantisation,
    registry,
    shared_root,
    split_loss,
    tensor_parallel,
    zero_bubble,
)
from presim.passes.chain import Chain
from presim.trace.schema import Category, Group, Kind, Manifest, Phase, Trace

_TENSOR_HOSTS = (
    "Host time with tensor parallelism comes from a table of DTensor's launch times. A launch-bound step "
    "may differ from a capture by 12 %; check such a plan with `presim run`."
)
_DDP_TYPE = (
    "With DDP parameters, gradients and optimizer states are of the model's type: there are no fp32 master weights."
)
_NORMS = {"fsdp2": ("data", "tensor"), "hsdp": ("shard", "tensor"), "ddp": ("tensor",), "zero1": ("data", "tensor")}
_EVEN_EXPERTS = (
    "Tokens are spread evenly over experts. For another distribution, capture the program with `presim run --values "
    "routing=zipf`."
)
# bytes of cuBLAS' workspace; True: Hopper or newer (ATen/cuda/CublasHandlePool.cpp)
_WORKSPACE = {True: 32 << 20, False: 8_519_680}


@dataclasses.dataclass(frozen=True)
class Composed:
    """Composed traces, each with the other ranks that it represents."""

    traces: tuple[Trace, ...]
    stands_for: dict[int, tuple[int, ...]]
    notes: tuple[str, ...] = ()
    begins: tuple[Ints, ...] = ()  # per trace: entries at which its micro-batches begin
    memory: tuple[Trace, ...] = ()  # per trace: memory events of all micro-batches; for most ranks only segments


def compose(graph: OperatorGraph, plan: Plan, cluster: Cluster, *, lacks: Lacks | None = None) -> Composed:
    """Compose the first rank of every pipeline stage; each represents all ranks of its stage.

    ``lacks``: micro-batches to omit from steps; default: none.

    Raises:
        InputError: the plan is invalid for this model or cluster.
    """
    count = stages.blocks(graph)
    check(plan, cluster.world_size, count)
    if not count and (plan.recompute != "none" or plan.activation_budget < 1 or plan.pipeline > 1):
        what = "a pipeline of 1" if plan.pipeline > 1 else "--recompute none and --activation-budget 1"
        raise InputError(
            f"{graph.model} has no list of equal blocks to recompute or to split into stages; use {what}, or "
            "capture the program with `presim run`"
        )
    job = _Job(graph, plan, cluster, lacks)
    places = [layout(plan, cluster.world_size, stage) for stage in range(plan.pipeline)]
    made = _Collected()
    for stage, place in enumerate(places):
        made.add(job.trace(stage, place))
    notes = [*([_TENSOR_HOSTS] if _style(plan).startswith("dtensor") else []), *job.notes]
    if any(node.operator == "aten::_grouped_mm" for segment in graph.segments for node in segment.nodes):
        notes.append(_EVEN_EXPERTS)
        notes += _padding(graph, plan, cluster)
    if plan.data_style == "ddp":
        notes.append(_DDP_TYPE)
    if not count:
        notes.append(f"{graph.model} has no list of equal blocks: FSDP2 gathers all of its parameters at once.")
    stands_for = {place.rank: place.stands_for for place in places}
    return Composed(tuple(made.traces), stands_for, tuple(notes), tuple(made.begins), tuple(made.memory))


def _padding(graph: OperatorGraph, plan: Plan, cluster: Cluster) -> list[str]:
    """A note if FSDP2 pads the experts' first dimension to the number of ranks."""
    count, ranks = expert_parallel.expert_count(graph), plan.shard or plan.data(cluster.world_size) * plan.context
    if plan.expert > 1 or plan.data_style not in ("fsdp2", "hsdp") or ranks <= count:
        return []
    return [
        f"FSDP2 pads {count} experts of a layer to its {ranks} ranks, and gathers and holds the padding: use expert "
        "parallelism (--ep), or shard fewer ranks (--dp-style hsdp --shard)."
    ]


class _Job:
    """State shared by all ranks of a plan."""

    def __init__(self, graph: OperatorGraph, plan: Plan, cluster: Cluster, lacks: Lacks | None) -> None:
        self.plan, self.cluster = plan, cluster
        self.whole = graph.parameter_count()
        self.tables = Tables()
        self.hosts = host_times(_style(plan), plan.cuda_graphs)
        quantisation.check(plan.passes, cluster.gpu.name, cluster.gpu.peak)
        self.graph, self.notes = self._passed(graph)
        self.experts = expert_parallel.experts(self.graph) if plan.expert > 1 else frozenset()
        count = plan.pipeline * plan.virtual
        sizes = plan.stages or stages.even(stages.blocks(graph), count)
        self.stages = stages.split(self.graph, sizes)
        self.all_micros = plan.micro_batches(cluster.world_size)
        self.lacks = lacks
        self.micros = self.all_micros - (lacks.micros if lacks else 0)
        self.orders = orders(plan.order, plan.pipeline, plan.virtual, self.micros, self.all_micros - self.micros)
        named = {group.name: index for index, group in enumerate(_groups(layout(plan, cluster.world_size)))}
        self.named = named
        self.blocks = Blocks(
            self.graph,
            plan.micro_batch,
            plan.local_sequence,
            self.tables,
            self.hosts,
            named,
            whole_again=plan.data_style == "zero1",
        )

    def _passed(self, graph: OperatorGraph) -> tuple[OperatorGraph, list[str]]:
        """The graph of one rank after all passes, and a note for each pass named by the plan. Each pass is checked."""
        plan, megatron = self.plan, self.plan.data_style == "zero1"
        chain = Chain(graph, plan.micro_batch, plan.sequence)
        tensor = functools.partial(
            tensor_parallel.apply,
            degree=plan.tensor,
            sequence=plan.sequence_parallel,
            vocabulary=plan.splits_words,
            gathers_again=megatron,
        )
        parts = plan.tensor if plan.sequence_parallel else 1
        chain.step("tensor parallelism", tensor, ranks=plan.tensor, parts=parts)
        if not megatron:
            chain.step("split loss", split_loss.apply)
        context = functools.partial(context_parallel.apply, degree=plan.context, style=plan.context_style)
        chain.step("context parallelism", context, ranks=plan.context, parts=plan.context)
        chain.step(
            "expert parallelism", functools.partial(expert_parallel.apply, degree=plan.expert), ranks=plan.expert
        )
        chain.step("attention", functools.partial(attention.apply, backend=_backend(plan, self.cluster)))
        chain.step("compiled functions", compiled.apply)
        chain.graph, notes = registry.apply(chain.graph, plan.passes, plan.micro_batch, plan.local_sequence)
        if plan.activation_budget < 1:
            notes += self._within_budget(chain)
        if plan.pipeline > 1:
            chain = Chain(chain.graph, plan.micro_batch, plan.local_sequence)
            chain.step("pipeline", shared_root.apply)
            if plan.order == "zero-bubble":
                chain.step("zero-bubble", zero_bubble.apply)
        return chain.graph, notes

    def _within_budget(self, chain: Chain) -> list[str]:
        """Choose which activations blocks keep within the budget; returns notes."""
        plan, gpu = self.plan, self.cluster.gpu
        kept: list[budget.Kept] = []
        cost = roofline(chain.graph, gpu, plan.micro_batch, plan.local_sequence)

        def function(graph: OperatorGraph) -> OperatorGraph:
            changed, chosen = budget.apply(graph, plan.activation_budget, cost, plan.micro_batch, plan.local_sequence)
            kept.extend(chosen)
            return changed

        chain.step("activation budget", function, adds=True)
        return [
            f"Activation budget {plan.activation_budget:g}: each block of {one.name} keeps {one.bytes / 2**20:,.0f} of "
            f"{one.most / 2**20:,.0f} MiB per micro-batch and recomputes {one.operators} operators in "
            f"{one.cost * 1e3:.2f} ms (roofline of {gpu.name}), the least time within the budget."
            for one in kept
        ]

    def trace(self, stage: int, place: Layout) -> Assembled:
        """The trace of the first rank of a stage."""
        plan, tables, hosts = self.plan, self.tables, self.hosts
        pipeline = Pipeline(
            self.graph,
            self.stages,
            stage,
            plan.pipeline,
            self.blocks.exact_bytes,
            tables,
            hosts,
            group=self.named["pipeline"],
            # with virtual stages, chunks share gradient names
            has_buffers=plan.data_style != "zero1" or plan.virtual > 1,
            pairs=(len(self.named) - 2, len(self.named) - 1),
        )
        own = range(stage, len(self.stages), plan.pipeline)
        runs = [run for one in own for run in pipeline.forward_runs(one)]
        held_units = separate_experts(units(self.graph, runs if plan.pipeline > 1 else None), self.experts)
        backward = [run for one in reversed(own) for run in (*pipeline.backward_runs(one), *pipeline.weight_runs(one))]
        data = self._data(held_units, backward, place)
        again = functools.partial(recompute.apply, graph=self.graph, blocks=plan.recompute_blocks)
        schedule = pipeline.apply(self.orders[stage], data, again if plan.recompute == "full" else tuple)
        groups = _groups(place)
        clipped = [self.named[name] for name in _NORMS[plan.data_style] if groups[self.named[name]].size > 1]
        held = data.held()
        kept = pipeline.held(self.micros)
        end = optimizer.end_of_step(
            held,
            optimizer=plan.optimizer,
            clip=plan.clip,
            groups=clipped,
            expert_groups=[self.named[name] for name in ("copies", "experts") if len(getattr(place, name)) > 1],
            stages=self.named["pipeline"] if plan.pipeline > 1 else -1,
            total=self.named["world"] if plan.data_style == "zero1" else -1,
            update=data.update(),
            tables=tables,
            hosts=hosts,
        )
        names = Names(self.all_micros)
        step = self.blocks.place((*schedule, *end, *data.after_update()), names, kept)
        # the first step creates the optimizer states at this position
        before = len(schedule) + int(plan.clip and bool(held))
        made = self.blocks.place(tuple(optimizer.states(held, plan.optimizer, tables, hosts)), names)
        computed, updated = step.cut(before)
        at_first = (_workspaces(self.cluster, tables, hosts), *data.setup(), *pipeline.setup(self.all_micros))
        second = self.blocks.place(tuple(data.before_second()), names)
        steps = [computed, made, updated, second, computed, updated]
        setup = self.blocks.place(at_first, names)
        shared = {False: self._sharers(place), True: max(1, len(place.copies))}
        local = sum(unit.elements // shared[unit.experts] for unit in held_units)
        return assemble(setup, steps, names, tables, self._manifest(place, groups, local), self.graph.root, self.lacks)

    def _data(self, held: list[Unit], backward: list[Run], place: Layout) -> DataParallel:
        plan, group = self.plan, self.named["shard" if place.shard else "data"]
        if plan.data_style in ("ddp", "zero1"):
            flavour = Ddp if plan.data_style == "ddp" else Zero1
            return flavour(
                self.graph,
                held,
                backward,
                len(place.data),
                group,
                self.tables,
                self.hosts,
                micros=self.micros,
                overlap=plan.overlap,
                stage=place.pipeline.index(place.rank),
                sequence_group=self.named["tensor"] if plan.sequence_parallel else -1,
            )
        ranks = self._sharers(place)
        replicas = (len(place.replicas), self.named["replicas"]) if place.shard else (1, -1)
        shared = (len(place.copies), self.named["copies"]) if place.copies else (1, -1)
        if plan.pipeline > 1:
            return GatheredFsdp2(self.graph, held, ranks, group, self.tables, self.hosts, replicas, shared)
        known = (self.graph, held, ranks, group, plan.reshard, self.tables, self.hosts, replicas)
        if place.copies:
            return ExpertFsdp2(*known, experts=shared)
        return Fsdp2(*known, keep_last=plan.keep_last)

    def _sharers(self, place: Layout) -> int:
        """Number of ranks that share one copy of the parameters."""
        styles = {"fsdp2": len(place.data), "hsdp": len(place.shard)}
        return styles.get(self.plan.data_style, 1)

    def _manifest(self, place: Layout, groups: list[Group], local: int) -> Manifest:
        plan, cluster, gpu = self.plan, self.cluster, self.cluster.gpu
        samples = plan.micro_batch * self.all_micros
        return Manifest(
            world_size=place.world_size,
            rank=place.rank,
            gpu=gpu.id,
            gpus_per_node=cluster.gpus_per_node,
            script=f"composed from {self.graph.model}",
            groups=tuple(groups),
            versions=dict(self.graph.versions),
            stream_priorities=PRIORITIES,
            device_total_bytes=gpu.memory_bytes,
            memory_capacity_bytes=gpu.memory_bytes - gpu.context_bytes,
            context_bytes=gpu.context_bytes,
            batch={
                "tokens": samples * plan.sequence,
                "samples": samples,
                "data_parallel_ranks": plan.data(cluster.world_size),
            },
            model={"parameters": self.whole, "parameters_local": local},
            reference_host=True,
            origin="composed",
            node=cluster.node.id,
            fabric=cluster.fabric.id,
        )


class _Collected:
    """Collects traces as they are composed.

    If traces omit micro-batches, full memory events are kept only for the first rank and for the rank with the highest
    peak, because results report only these. Keeping all took 1.2 GB for 16 stages of a 70B model with 512
    micro-batches.
    """

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.begins: list[Ints] = []
        self.memory: list[Trace] = []
        self._fullest = 0

    def add(self, one: Assembled) -> None:
        """Add one rank."""
        trace, place = _with_peaks(one.trace, one.memory), len(self.traces)
        self.traces.append(trace)
        self.begins.append(one.begins)
        if one.memory is one.trace:
            self.memory.append(trace)
            return
        self.memory.append(_with_peaks(one.memory, one.memory))
        if place and _reserved(trace) > _reserved(self.traces[self._fullest]):
            self._fullest, place = place, self._fullest
        if place:
            self.memory[place] = _segments(self.memory[place])


def _reserved(trace: Trace) -> int:
    return trace.manifest.allocator["peak_reserved_bytes"]


def _segments(memory: Trace) -> Trace:
    """Only the segment entries of a memory trace."""
    rows = memory.mask(Kind.SEGMENT_ALLOC)
    return dataclasses.replace(memory, columns={name: column[rows] for name, column in memory.columns.items()})


def _with_peaks(trace: Trace, memory: Trace) -> Trace:
    """The trace with the allocator's peaks in its manifest, as in captures."""
    kind, value = memory.columns["kind"], memory.columns["value"]
    change = np.where(kind == Kind.ALLOC, value, 0) - np.where(kind == Kind.FREE, value, 0)
    peaks = {
        "peak_allocated_bytes": int(np.cumsum(change).max(initial=0)),
        "peak_reserved_bytes": int(value[kind == Kind.SEGMENT_ALLOC].sum()),
    }
    return dataclasses.replace(trace, manifest=msgspec.structs.replace(trace.manifest, allocator=peaks))


def _style(plan: Plan) -> str:
    """The launch-time table: the plan's style, else DTensor for FSDP2 with tensor parallelism, else eager."""
    own = {"ddp": "ddp", "zero1": "megatron"}
    split = "dtensor-sequence" if plan.sequence_parallel else "dtensor"
    return plan.style or own.get(plan.data_style, split if plan.tensor > 1 else "eager")


def _backend(plan: Plan, cluster: Cluster) -> str:
    """PyTorch's preferred backend for causal attention in 16 bits."""
    if plan.attention != "auto":
        return plan.attention
    return "cudnn" if cluster.gpu.vendor == "nvidia" and cluster.gpu.compute_major >= 9 else "flash"


def _groups(place: Layout) -> list[Group]:
    everyone = tuple(range(place.world_size))
    named = [
        ("world", everyone),
        ("data", place.data),
        ("tensor", place.tensor),
        ("context", place.context),
        ("pipeline", place.pipeline),
    ]
    if place.shard:
        named += [("shard", place.shard), ("replicas", place.replicas)]
    if place.experts:
        named += [("experts", place.experts), ("copies", place.copies)]
    if len(place.pipeline) > 1:
        named += [(f"pipeline {'-'.join(map(str, pair))}", pair) for pair in place.neighbours]
    return [Group(name, ranks, len(ranks)) for name, ranks in named]


def _workspaces(cluster: Cluster, tables: Tables, hosts: HostTimes) -> Do:
    """cuBLAS workspaces of the forward and the backward thread, which are never freed."""
    rows = Rows(tables, hosts, Phase.OTHER)
    for thread in ("forward", "backward"):
        rows.alloc(f"workspace {thread}", _WORKSPACE[cluster.gpu.compute_major >= 9], Category.OTHER)
    template = rows.template()
    return Do(template, tuple(("held", slot) for slot in template.slots))
