"""Compose the trace of a training job from a graph and a plan, without running it (`presim compose`)."""

from __future__ import annotations

import functools

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.operator_bound import roofline
from presim.composition.own_schedule import splits_backward
from presim.composition.passes import (
    attention_backend,
    budget,
    compiled_functions,
    context_parallel,
    expert_parallel,
    expert_routing,
    registry,
    shared_root,
    split_loss,
    tensor_parallel,
    untie,
    zero_bubble,
)
from presim.composition.passes.expert_routing import ExpertLoad
from presim.composition.passes.pass_chain import PassChain
from presim.composition.plan import Plan
from presim.composition.stage_placement import stage_ranks
from presim.hardware.cluster import Cluster
from presim.hardware.gpu_schema import Gpu


def apply_passes(graph: OperatorGraph, plan: Plan, cluster: Cluster) -> tuple[OperatorGraph, list[str], ExpertLoad]:
    """The graph of one rank after all passes, notes, and the load of its experts. Each pass is checked."""
    megatron = plan.data_style == "zero1"
    chain = PassChain(graph, plan.micro_batch, plan.sequence)
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
    load, expert_notes = _share_experts(chain, plan)
    chain.step("attention", functools.partial(attention_backend.apply, backend=_backend(plan, cluster)))
    chain.step("compiled functions", compiled_functions.apply)
    changed, notes = registry.apply(chain.graph, plan.passes, plan.micro_batch, plan.local_sequence)
    chain = PassChain(changed, plan.micro_batch, plan.local_sequence)  # 2:4 products have fewer FLOPs
    notes += expert_notes
    if plan.activation_budget < 1:
        notes += _within_budget(chain, plan, cluster.gpu)
    if plan.pipeline > 1:
        ranks = stage_ranks(plan)
        ends_apart = ranks[0] != ranks[-1]  # not where stages turn back, as DualPipe's do
        chain = PassChain(
            untie.apply(chain.graph) if ends_apart else chain.graph, plan.micro_batch, plan.local_sequence
        )
        chain.step("pipeline", shared_root.apply)
        if plan.order in ("zero-bubble", "dualpipe", "dualpipev") or splits_backward(plan.rank_passes):
            chain.step("zero-bubble", zero_bubble.apply)
    return chain.graph, notes, load


def _share_experts(chain: PassChain, plan: Plan) -> tuple[ExpertLoad, list[str]]:
    """Expert parallelism, for the rank with the most tokens; returns its load and notes."""
    if plan.expert == 1:
        return expert_routing.EVEN, []
    routing = expert_routing.parse(plan.routing, plan.expert_capacity, plan.pad_experts)
    load = expert_parallel.fullest_load(chain.graph, routing, plan.expert, plan.micro_batch, plan.local_sequence)
    function = functools.partial(
        expert_parallel.apply,
        degree=plan.expert,
        exchange=plan.expert_exchange,
        load=load,
        batch=plan.micro_batch,
        sequence=plan.local_sequence,
    )
    chain.step("expert parallelism", function, ranks=plan.expert, load=load.received)
    if routing.is_even:
        return load, []
    limit = f", capacity {plan.expert_capacity:g}" if plan.expert_capacity else ""
    return load, [
        f"Routing {plan.routing}{limit}: of the {plan.expert} ranks that share experts, the one with the most tokens "
        f"receives {load.received:.3f} times an even share, and each sends {load.sent:.3f} times as many as without a "
        "capacity. The composed rank has the most tokens in every layer, so its memory is an upper bound."
    ]


def _within_budget(chain: PassChain, plan: Plan, gpu: Gpu) -> list[str]:
    """Choose which activations blocks keep within the budget; returns notes."""
    recomputations: list[budget.BlockRecomputation] = []
    cost = roofline(chain.graph, gpu, plan.micro_batch, plan.local_sequence)

    def function(graph: OperatorGraph) -> OperatorGraph:
        changed, block_recomputations = budget.apply(
            graph, plan.activation_budget, cost, plan.micro_batch, plan.local_sequence
        )
        recomputations.extend(block_recomputations)
        return changed

    chain.step("activation budget", function, adds=True)
    return [
        f"Activation budget {plan.activation_budget:g}: each block of {block.name} keeps {block.bytes / 2**20:,.0f} of "
        f"{block.max_bytes / 2**20:,.0f} MiB per micro-batch and recomputes {block.operators} operators in "
        f"{block.cost * 1e3:.2f} ms (roofline of {gpu.name}), the least time within the budget."
        for block in recomputations
    ]


def _backend(plan: Plan, cluster: Cluster) -> str:
    """PyTorch's preferred backend for causal attention in 16 bits."""
    if plan.attention != "auto":
        return plan.attention
    return "cudnn" if cluster.gpu.vendor == "nvidia" and cluster.gpu.compute_major >= 9 else "flash"
