"""The pools of GPUs that a request asks for."""

from __future__ import annotations

import dataclasses

from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training.rl_job import Placement, pool_of
from presim.post_training.rl_request import RlRequest


def placement_of(request: RlRequest, cluster: Cluster) -> Placement:
    """Which GPUs of a cluster train, generate and score.

    Raises:
        InputError: options contradict each other, or pools have more or fewer GPUs than the cluster.
    """
    if request.gpus not in (None, cluster.world_size):
        raise InputError(
            f"the pools of the placement have {request.gpus} GPUs, and the cluster {cluster.world_size}; change one of "
            "both"
        )
    sizes = [(pool.name, pool.gpus) for pool in request.scoring_pools]
    sizes += [(pool.name, pool.gpus) for pool in request.service_pools if pool.gpus]
    gpus = cluster.world_size - sum(pool_gpus for _, pool_gpus in sizes)
    for name, pool_gpus in sizes:
        pool_of(cluster, pool_gpus, name)
    makers = {"colocated": _colocated, "separate": _separate, "hybrid": _hybrid}
    placement = makers[request.placement](request, cluster, gpus)
    return dataclasses.replace(placement, scoring_pools=request.scoring_pools, service_pools=request.service_pools)


def _colocated(request: RlRequest, cluster: Cluster, gpus: int) -> Placement:
    if request.overlap_sync:
        raise InputError("--overlap-sync is of engines on GPUs of their own; add --placement separate, or leave it out")
    if request.rollout_gpus or request.staleness or request.partial:
        raise InputError(
            "--rollout-gpus, --staleness and --partial are of separate pools; add --placement separate, or leave "
            "them out"
        )
    return Placement(gpus, gpus)


def _rollout_gpus(request: RlRequest, cluster: Cluster, gpus: int) -> int:
    rollout_gpus = request.rollout_gpus or gpus // 2
    if gpus == 1:
        raise InputError(
            f"{request.placement} pools take two GPUs or more; name more, or leave out --placement {request.placement}"
        )
    if not 0 < rollout_gpus < gpus:
        raise InputError(
            f"{rollout_gpus} of {gpus} GPUs cannot generate while others train; use --rollout-gpus of 1 to {gpus - 1}"
        )
    pool_of(cluster, rollout_gpus, "rollout")
    return rollout_gpus


def _separate(request: RlRequest, cluster: Cluster, gpus: int) -> Placement:
    rollout_gpus = _rollout_gpus(request, cluster, gpus)
    if request.partial and not request.staleness:
        raise InputError("--partial interrupts responses that go on with newer weights; add --staleness 1 or more")
    return Placement(
        gpus - rollout_gpus, rollout_gpus, is_colocated=False, staleness=request.staleness, is_partial=request.partial
    )


def _hybrid(request: RlRequest, cluster: Cluster, gpus: int) -> Placement:
    """Training GPUs generate, too, and switch to training when all responses of the batch are there."""
    if request.staleness or request.partial or request.overlap_sync:
        raise InputError(
            "GPUs that switch between rollouts and training are simulated on-policy; leave out --staleness, --partial "
            "and --overlap-sync, or use --placement separate"
        )
    rollout_gpus = _rollout_gpus(request, cluster, gpus)
    return Placement(gpus - rollout_gpus, gpus, is_colocated=False, is_hybrid=True)
