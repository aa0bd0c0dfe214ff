"""A lower bound on the memory of a plan's fullest rank: parameters with their states, and activations in flight.

Parameters and states are counted by style of data parallelism, as `presim.composition.runtime` allocates them. Tensors
that the backward pass reads are alive when the forward pass ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from presim.composition.plan import Plan
    from presim.hardware.cluster import Cluster
    from presim.planner.strategy.floors import Floor
    from presim.planner.strategy.stage_shares import StageShares

_MASTER, _MODEL = 4, 2  # bytes of an element in fp32, and at least in the model's type
_ADAM = 2  # states of each element


def memory_bytes(plan: Plan, cluster: Cluster, floor: Floor, shares: StageShares, micro: int) -> int:
    """Bytes that the rank with most memory has at least, without the driver's context."""
    return max(
        state_bytes(plan, cluster.world_size, shares, rank, micro) + _activation_bytes(plan, floor, shares, rank, micro)
        for rank in range(plan.pipeline)
    )


def state_bytes(plan: Plan, world_size: int, shares: StageShares, rank: int, micro: int) -> int:
    """Parameters, gradients and optimizer states that a rank has at the end of a forward pass."""
    element_count = shares.elements(rank)
    states = _ADAM if plan.optimizer == "adamw" and plan.offload_optimizer == "none" else 0
    if plan.data_style == "ddp":  # everything in the model's type, gradients in buckets
        return element_count * (_MODEL * 2 + states * _MODEL)
    sharers = plan.shard if plan.data_style == "hsdp" else plan.sharing(world_size)
    shard = element_count // round(sharers / shares.passes)  # under DualPipe both ranks with a stage share it
    if plan.data_style == "zero1":  # buffers of parameters and gradients
        main = 0 if plan.offload_optimizer != "none" else shard * _MASTER * (1 + states)
        return element_count * (_MODEL + _MASTER) + main
    held_bytes = shard * _MASTER * (1 + states)
    if plan.pipeline > 1:  # parameters stay gathered, and gradients are summed before they are reduced
        is_steady = plan.order == "1f1b" and micro > plan.pipeline - rank
        return held_bytes + element_count * (_MODEL + (_MASTER if is_steady else 0))
    gathered = element_count if not plan.reshard else 0 if plan.separate_ends else shares.root_elements()
    return held_bytes + gathered * _MODEL + (shard * _MASTER if micro > 1 else 0)


def _activation_bytes(plan: Plan, floor: Floor, shares: StageShares, rank: int, micro: int) -> int:
    """Activations of the micro-batches in flight on a rank."""
    stages = shares.stages_by_rank[rank]
    blocks = shares.blocks * floor.is_block  # [stage, segment]
    outside_bytes = shares.blocks * ~floor.is_block @ floor.saved_bytes
    last_bytes = int(outside_bytes[max(stages)])
    if plan.offload_activations or plan.activation_budget < 1:
        return last_bytes if plan.pipeline == 1 else 0
    in_flight = _in_flight(plan, rank, micro)
    if plan.recompute == "none":
        return int(min((blocks @ floor.saved_bytes)[stage] for stage in stages) * in_flight) + last_bytes
    if plan.recompute_blocks:
        return 0
    inputs_bytes = min((blocks @ floor.input_bytes)[stage] for stage in stages)
    own_blocks = blocks[list(stages)].sum(axis=0) > 0
    largest_bytes = int(np.max(floor.saved_bytes, where=own_blocks, initial=0))
    return int(inputs_bytes * in_flight) + max(largest_bytes, last_bytes)


def _in_flight(plan: Plan, rank: int, micro: int) -> int:
    """Forward passes of a stage, on a rank, whose backward passes are still to come."""
    ranks = plan.pipeline
    if plan.order == "gpipe":
        return micro
    if ranks == 1 or plan.order == "1f1b":
        return min(ranks - rank, micro)
    if plan.order == "interleaved":
        round_length = micro // max(1, micro // ranks)
        ahead = (plan.virtual - 1) * round_length + 2 * (ranks - 1 - rank)  # as `presim.composition.pass_orders`
        return min(ahead + 1, micro * plan.virtual)
    return min(ranks, micro) if rank == 0 else 0
