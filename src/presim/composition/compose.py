"""Compose the trace of a training job from a graph and a plan, without running it (`presim compose`)."""

from __future__ import annotations

import dataclasses

from presim.composition import stage_split
from presim.composition.all_memory import Lacks
from presim.composition.composition import Composition
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.host_memory import host_memory_notes
from presim.composition.kept_traces import Kept
from presim.composition.layout import layout
from presim.composition.names import Ints
from presim.composition.passes.expert_parameters import expert_count
from presim.composition.plan import Plan
from presim.composition.plan_check import check
from presim.composition.schedule_source import with_passes
from presim.errors import InputError
from presim.hardware.cluster import Cluster
from presim.trace.job import Job
from presim.trace.schema import Trace

_TENSOR_HOSTS = (
    "Host time with tensor parallelism comes from a table of DTensor's launch times. A launch-bound step "
    "may differ from a capture by 12 %; check such a plan with `presim run`."
)
_DDP_TYPE = (
    "With DDP parameters, gradients and optimizer states are of the model's type: there are no fp32 master weights."
)
_EAGER_LAYERS = (
    "Layers are those of the model's own eager code, split and scheduled by presim, not Megatron's or Transformer "
    "Engine's: --framework megatron captures those."
)
_EVEN_EXPERTS = (
    "Tokens are spread evenly over experts. For another distribution add --routing zipf:1.0 to an expert degree, or "
    "capture the program with `presim run --values routing=zipf:1.0`."
)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Composed(Job):
    """A job, with what the composer knows of its micro-batches."""

    begins: tuple[Ints, ...] = ()  # per trace: entries at which its micro-batches begin
    memory: tuple[Trace, ...] = ()  # per trace: memory events of all micro-batches; for most ranks only segments


def compose(
    graph: OperatorGraph, plan: Plan, cluster: Cluster, *, lacks: Lacks | None = None, first_only: bool = False
) -> Composed:
    """Compose the first rank of every pipeline stage; each represents all ranks of its stage.

    ``lacks``: micro-batches to omit from steps; default: none. ``first_only``: compose the first stage only.

    Raises:
        InputError: the plan is invalid for this model or cluster.
    """
    count = stage_split.count_blocks(graph)
    check(plan, cluster.world_size, count)
    plan = with_passes(plan, cluster.world_size)
    if not count:
        _check_whole(graph, plan)
    job = Composition(graph, plan, cluster, lacks)
    count_of_stages = 1 if first_only else plan.pipeline
    places = [layout(plan, cluster.world_size, stage) for stage in range(count_of_stages)]
    kept_traces = Kept()
    uses = []
    for stage, rank_layout in enumerate(places):
        assembled, use = job.trace(stage, rank_layout)
        kept_traces.add(assembled)
        uses.append(use)
    notes = [
        *([_EAGER_LAYERS] if plan.tensor * plan.pipeline > 1 else []),
        *host_memory_notes(uses, plan, cluster),
        *([_TENSOR_HOSTS] if plan.launch_style.startswith("dtensor") else []),
        *job.notes,
    ]
    if any(node.operator == "aten::_grouped_mm" for segment in graph.segments for node in segment.nodes):
        notes += [_EVEN_EXPERTS] if plan.routing == "balanced" else []
        notes += _padding(graph, plan, cluster)
    if plan.data_style == "ddp":
        notes.append(_DDP_TYPE)
    if not count:
        notes.append(f"{graph.model} has no list of equal blocks: FSDP2 gathers all of its parameters at once.")
    stands_for = {rank_layout.rank: rank_layout.stands_for for rank_layout in places}
    return Composed(
        tuple(kept_traces.traces),
        stands_for,
        notes=tuple(notes),
        begins=tuple(kept_traces.begins),
        memory=tuple(kept_traces.memory),
    )


def _check_whole(graph: OperatorGraph, plan: Plan) -> None:
    """Raise where a plan needs blocks, of a model that has none."""
    if plan.recompute == "none" and plan.activation_budget == 1 and plan.pipeline == 1 and not plan.offload_activations:
        return
    remedy = "a pipeline of 1" if plan.pipeline > 1 else "--recompute none and --activation-budget 1"
    remedy = "--offload-activations 0" if plan.offload_activations else remedy
    raise InputError(
        f"{graph.model} has no list of equal blocks that could be recomputed, offloaded or put into stages; use "
        f"{remedy}, or capture the program with `presim run`"
    )


def _padding(graph: OperatorGraph, plan: Plan, cluster: Cluster) -> list[str]:
    """A note if FSDP2 pads the experts' first dimension to the number of ranks."""
    count, ranks = expert_count(graph), plan.shard or plan.data(cluster.world_size) * plan.context
    if plan.expert > 1 or plan.data_style not in ("fsdp2", "hsdp") or ranks <= count:
        return []
    return [
        f"FSDP2 pads {count} experts of a layer to its {ranks} ranks, and gathers and holds the padding: use expert "
        "parallelism (--ep), or shard fewer ranks (--dp-style hsdp --shard)."
    ]
