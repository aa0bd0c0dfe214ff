"""Compose the trace of a training job from a graph and a plan, without running it (`presim compose`)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from presim.composition import stage_split
from presim.composition.all_memory import Lacks
from presim.composition.block_templates import Blocks, Placed
from presim.composition.entry_templates import PRIORITIES, Rows, Tables
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.host_gaps import HostTimes, host_times
from presim.composition.host_memory import HostUse
from presim.composition.layout import StageGroups, groups, layout, pair_groups
from presim.composition.names import Names
from presim.composition.orders import orders
from presim.composition.own_schedule import parse
from presim.composition.passes import expert_parameters, quantisation, sparse_weights, untie
from presim.composition.plan import Plan
from presim.composition.plan_passes import apply_passes
from presim.composition.runtime import activation_offload, optimizer, optimizer_offload, recompute, tied
from presim.composition.runtime.data_parallel import DataParallel
from presim.composition.runtime.ddp import Ddp
from presim.composition.runtime.fsdp2 import Fsdp2
from presim.composition.runtime.fsdp2_experts import ExpertFsdp2
from presim.composition.runtime.fsdp2_gathered import GatheredFsdp2
from presim.composition.runtime.optimizer import Held
from presim.composition.runtime.pipeline import Pipeline
from presim.composition.runtime.updates import UPDATES
from presim.composition.runtime.with_experts import WithExperts
from presim.composition.runtime.zero1 import Zero1
from presim.composition.schedule import Action, BlockRun, Do, Key
from presim.composition.stage_placement import stage_ranks
from presim.composition.template_assembly import Assembled, assemble
from presim.composition.units import Unit, separate_experts, units
from presim.hardware.cluster import Cluster
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import EXPERT_LOAD, Category, Group, Manifest, Phase

_NORMS = {"fsdp2": ("data", "tensor"), "hsdp": ("shard", "tensor"), "ddp": ("tensor",), "zero1": ("data", "tensor")}
# bytes of cuBLAS' workspace; True: Hopper or newer (ATen/cuda/CublasHandlePool.cpp)
_WORKSPACE = {True: 32 << 20, False: 8_519_680}


class Composition:
    """State shared by all ranks of a plan."""

    def __init__(self, graph: OperatorGraph, plan: Plan, cluster: Cluster, lacks: Lacks | None) -> None:
        self.plan, self.cluster = plan, cluster
        self.whole = graph.parameter_count()
        self.tables = Tables()
        self.hosts = host_times(plan.launch_style, plan.cuda_graphs)
        for gpu in dict.fromkeys(view.gpu for view in cluster.views()):
            quantisation.check(plan.passes, gpu.name, gpu.peak)
            sparse_weights.check(plan.passes, gpu.name, gpu.vendor, gpu.compute_major)
        self.graph, self.notes, self.load = apply_passes(graph, plan, cluster)
        self.experts = expert_parameters.experts(self.graph) if plan.expert > 1 else frozenset()
        count = plan.pipeline * plan.virtual
        sizes = plan.stages or stage_split.even_sizes(stage_split.count_blocks(graph), count)
        self.stages = stage_split.split_stages(self.graph, sizes)
        self.stages *= 2 if plan.order == "dualpipe" else 1  # with the copies of each
        self.all_micros = plan.micro_batches(cluster.world_size)
        self.lacks = lacks
        self.micros = self.all_micros - (lacks.micros if lacks else 0)
        self.each = self.micros // 2 if plan.order == "dualpipe" else self.micros  # of a stage
        self.orders = (
            parse(plan.rank_passes, plan.pipeline, count, self.micros).orders()
            if plan.rank_passes
            else orders(
                plan.order,
                plan.pipeline,
                plan.virtual,
                self.micros,
                self.all_micros - self.micros,
                side_by_side=plan.side_by_side,
            )
        )
        self.stage_ranks = stage_ranks(plan)
        self.copies = untie.copies(self.graph)
        first = groups(layout(plan, cluster.world_size), tied=bool(self.copies))
        named = {group.name: index for index, group in enumerate(first)}
        self.named = named
        self.blocks = Blocks(
            self.graph,
            plan.micro_batch,
            plan.local_sequence,
            self.tables,
            self.hosts,
            named,
            whole_again=plan.recompute_whole or plan.data_style == "zero1",
        )

    def trace(self, stage: int, rank_layout: StageGroups) -> tuple[Assembled, HostUse]:
        """The trace of the rank that has this stage, and what it keeps in host memory."""
        plan = self.plan
        pipeline = self._pipeline(stage, pair_groups(rank_layout, tied=bool(self.copies)))
        forward, backward = self._runs(stage, pipeline)
        held_units = separate_experts(
            units(self.graph, forward if plan.pipeline > 1 or plan.separate_ends else None), self.experts
        )
        data = self._data(held_units, backward, rank_layout)
        recompute_runs = functools.partial(recompute.apply, graph=self.graph, blocks=plan.recompute_blocks)
        passes = pipeline.apply(
            self.orders[stage], data, recompute_runs if plan.recompute == "full" else tuple, self.each
        )
        held_tensors, unfreed_keys = data.held(), pipeline.held(self.micros)
        offloaded = self._offloaded(passes, unfreed_keys)
        schedule = (*offloaded.schedule, *self._tied(rank_layout))
        updates, optimizer_bytes = self._updates(held_tensors, data)
        end = self._end(held_tensors, updates, rank_layout)

        names = Names(self.all_micros)
        step = self.blocks.place((*schedule, *end, *data.after_update()), names, unfreed_keys)
        # the first step creates the optimizer states at this position
        before = len(schedule) + int(plan.clip and bool(held_tensors))
        setup, steps = self._steps(step.cut(before), held_tensors, data, pipeline, names)
        local_elements = self._local_elements(held_units, rank_layout)
        manifest = self._manifest(rank_layout, groups(rank_layout, tied=bool(self.copies)), local_elements)
        made_of = assemble(setup, steps, names, self.tables, manifest, self.graph.root, self.lacks)
        copied = offloaded.bytes * self.all_micros // self.micros
        return made_of, HostUse(offloaded.pinned_bytes, optimizer_bytes, copied)

    def _pipeline(self, stage: int, pairs: dict[int, int]) -> Pipeline:
        plan = self.plan
        return Pipeline(
            self.graph,
            self.stages,
            stage,
            plan.pipeline,
            self.blocks.exact_bytes,
            self.tables,
            self.hosts,
            group=self.named["pipeline"],
            # with virtual stages, chunks share gradient names
            has_buffers=plan.order != "dualpipe" and (plan.data_style != "zero1" or plan.virtual > 1),
            pairs=pairs,
            stage_ranks=self.stage_ranks,
            is_dual=plan.order == "dualpipe",
            separate_ends=plan.separate_ends,
        )

    def _runs(self, stage: int, pipeline: Pipeline) -> tuple[list[BlockRun], list[BlockRun]]:
        """What the rank of a stage runs: forward in the order of its chunks, backward in the opposite one."""
        rank_stages = [number for number, stage_rank in enumerate(self.stage_ranks) if stage_rank == stage]
        rank_stages.sort(key=pipeline.chunk)
        forward = [run for stage_number in rank_stages for run in pipeline.forward_runs(stage_number)]
        backward = [
            run
            for stage_number in reversed(rank_stages)
            for run in (*pipeline.backward_runs(stage_number), *pipeline.weight_runs(stage_number))
        ]
        return forward, backward

    def _end(self, held_tensors: list[Held], updates: list[Do], rank_layout: StageGroups) -> Sequence[Do]:
        """The end of a step: norms of the gradients over their groups, clipping and the update."""
        plan = self.plan
        rank_groups = groups(rank_layout, tied=bool(self.copies))
        clipped = [self.named[name] for name in _NORMS[plan.data_style] if rank_groups[self.named[name]].size > 1]
        return optimizer.end_of_step(
            held_tensors,
            clip=plan.clip,
            groups=clipped,
            expert_groups=[self.named[name] for name in self._expert_norms() if len(getattr(rank_layout, name)) > 1],
            stages=self.named["pipeline"] if plan.pipeline > 1 else -1,
            total=self.named["world"] if plan.data_style == "zero1" else -1,
            update=updates,
            tables=self.tables,
            hosts=self.hosts,
        )

    def _steps(
        self,
        halves: tuple[Placed, Placed],
        held_tensors: list[Held],
        data: DataParallel,
        pipeline: Pipeline,
        names: Names,
    ) -> tuple[Placed, list[Placed]]:
        """The setup, and two steps of which the first creates the optimizer's states before it updates."""
        plan, tables, hosts = self.plan, self.tables, self.hosts
        computed, updated = halves
        own_states = optimizer.states(held_tensors, plan.optimizer, tables, hosts, plan.offload_optimizer)
        placed_states = self.blocks.place(tuple(own_states), names)
        at_first = (_workspaces(self.cluster, tables, hosts), *data.setup(), *pipeline.setup(self.all_micros))
        second = self.blocks.place(tuple(data.before_second()), names)
        setup = self.blocks.place(at_first, names)
        return setup, [computed, placed_states, updated, second, computed, updated]

    def _local_elements(self, held_units: Sequence[Unit], rank_layout: StageGroups) -> int:
        """Number of parameters that the rank stores."""
        own_copies = len(rank_layout.copies) if self.plan.data_style in ("fsdp2", "hsdp") else 1
        shared = {False: self._sharers(rank_layout), True: max(1, own_copies)}
        return sum(unit.elements // shared[unit.experts] for unit in held_units)

    def _expert_load(self) -> dict[str, int]:
        return {} if self.load.received == 1 else {EXPERT_LOAD: round(self.load.received * 1e6)}

    def _expert_norms(self) -> tuple[str, ...]:
        """Groups over which norms of experts' gradients are summed; under DDP copies have the same gradients."""
        return ("experts",) if self.plan.data_style == "ddp" else ("copies", "experts")

    def _tied(self, rank_layout: StageGroups) -> list[Do]:
        """The gradients of tied parameters are summed over both ends of the pipeline."""
        if not self.copies or rank_layout.rank not in rank_layout.end_ranks:
            return []
        is_sharded = self.plan.data_style in ("fsdp2", "hsdp")
        dtype = "float32" if self.plan.data_style == "zero1" else self.copies[0].dtype
        group = self.named[tied.GROUP]
        return tied.reduce_tied_gradients(
            self.copies, group, self._sharers(rank_layout) if is_sharded else 1, dtype, self.tables, self.hosts
        )

    def _offloaded(self, passes: list[Action], unfreed_keys: frozenset[Key]) -> activation_offload.Offloaded:
        blocks = self.plan.offload_activations
        if not blocks:
            return activation_offload.Offloaded(tuple(passes))
        return activation_offload.apply(
            passes, self.graph, blocks, unfreed_keys, self.blocks.exact_bytes, self.tables, self.hosts
        )

    def _updates(self, held_tensors: list[Held], data: DataParallel) -> tuple[list[Do], int]:
        """The update of parameters, and the host memory that it takes."""
        plan, tables, hosts = self.plan, self.tables, self.hosts
        if plan.optimizer not in UPDATES or not held_tensors:
            return [], 0
        kind, offload_kind = UPDATES[plan.optimizer], plan.offload_optimizer
        if offload_kind == "none":
            return [optimizer.update(held_tensors, kind, tables, hosts), *data.update()], 0
        gradient_element_bytes = dtype_bytes(held_tensors[0].dtype)
        parameter_element_bytes = (
            dtype_bytes(self.graph.parameters[0].dtype) if plan.data_style == "zero1" else gradient_element_bytes
        )
        sharers = min(self.cluster.gpus_per_node, self.cluster.node.gpus)
        update_actions = optimizer_offload.update(
            held_tensors, kind, offload_kind, parameter_element_bytes, sharers, tables, hosts
        )
        return [*update_actions, *data.update()], optimizer_offload.host_bytes(
            held_tensors, kind, offload_kind, parameter_element_bytes
        )

    def _data(self, held_units: list[Unit], backward: list[BlockRun], rank_layout: StageGroups) -> DataParallel:
        plan, group = self.plan, self.named["shard" if rank_layout.shard else "data"]
        if plan.data_style in ("ddp", "zero1"):
            flavour = Ddp if plan.data_style == "ddp" else Zero1
            make = functools.partial(
                flavour,
                graph=self.graph,
                runs=backward,
                tables=self.tables,
                hosts=self.hosts,
                micros=self.each,
                overlap=plan.overlap,
                stage=self._number(rank_layout),
                on_host=plan.offload_optimizer == "cpu",
            )
            dense_parallel = make(
                units=[unit for unit in held_units if not unit.experts],
                ranks=len(rank_layout.data),
                group=group,
                sequence_group=self.named["tensor"] if plan.sequence_parallel else -1,
            )
            expert_units = [dataclasses.replace(unit, experts=False) for unit in held_units if unit.experts]
            if not expert_units:
                return dense_parallel
            return WithExperts(
                dense_parallel,
                make(units=expert_units, ranks=len(rank_layout.copies), group=self.named["copies"], tag="experts"),
            )
        ranks = self._sharers(rank_layout)
        replicas = (len(rank_layout.replicas), self.named["replicas"]) if rank_layout.shard else (1, -1)
        shared = (len(rank_layout.copies), self.named["copies"]) if rank_layout.copies else (1, -1)
        if plan.pipeline > 1:
            return GatheredFsdp2(self.graph, held_units, ranks, group, self.tables, self.hosts, replicas, shared)
        fsdp_arguments = (self.graph, held_units, ranks, group, plan.reshard, self.tables, self.hosts, replicas)
        has_root = not plan.separate_ends
        if rank_layout.copies:
            return ExpertFsdp2(*fsdp_arguments, keep_last=plan.keep_last, experts=shared, has_root=has_root)
        return Fsdp2(*fsdp_arguments, keep_last=plan.keep_last, has_root=has_root)

    def _number(self, rank_layout: StageGroups) -> int:
        """Number of a rank in its pipeline; under DualPipe from the nearer end, as both ends have the first stage."""
        number = rank_layout.pipeline.index(rank_layout.rank)
        return min(number, self.plan.pipeline - 1 - number) if self.plan.order == "dualpipe" else number

    def _sharers(self, rank_layout: StageGroups) -> int:
        """Number of ranks that share one copy of the parameters."""
        styles = {"fsdp2": len(rank_layout.data), "hsdp": len(rank_layout.shard)}
        return styles.get(self.plan.data_style, 1)

    def _manifest(self, rank_layout: StageGroups, groups: list[Group], local: int) -> Manifest:
        plan, cluster, gpu = self.plan, self.cluster, self.cluster.gpu
        samples = plan.micro_batch * self.all_micros
        return Manifest(
            world_size=rank_layout.world_size,
            rank=rank_layout.rank,
            gpu=gpu.id,
            gpus_per_node=cluster.gpus_per_node,
            script=f"composed from the eager layers of {self.graph.model}",
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
            model={"parameters": self.whole, "parameters_local": local, **self._expert_load()},
            reference_host=True,
            origin="composed",
            node=cluster.node.id,
            fabric=cluster.fabric.id,
        )


def _workspaces(cluster: Cluster, tables: Tables, hosts: HostTimes) -> Do:
    """cuBLAS workspaces of the forward and the backward thread, which are never freed."""
    rows = Rows(tables, hosts, Phase.OTHER)
    for thread in ("forward", "backward"):
        rows.alloc(f"workspace {thread}", _WORKSPACE[cluster.gpu.compute_major >= 9], Category.OTHER)
    template = rows.template()
    return Do(template, tuple(("held", slot) for slot in template.slots))
