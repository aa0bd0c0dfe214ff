"""The cluster that a verb predicts for, and the settings of its simulation, from the options."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import msgspec

from presim.cost.overlap import model_of
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.options import ClusterOptions, EvaluationOptions, SimulateOptions
from presim.system.files import to_type

if TYPE_CHECKING:
    from presim.evaluation.what_if import Changes
    from presim.hardware.cluster import Cluster
    from presim.trace.job_store import JobManifest


def cluster_of_saved(directory: str | os.PathLike[str], options: EvaluationOptions) -> Cluster:
    """The cluster that a saved job is simulated on: the options', completed by what was captured.

    Raises:
        InputError: there is no job, or no such cluster is known.
    """
    from presim.trace import job_store

    return cluster_of_captured(job_store.load(directory).manifest, options)


def cluster_of_captured(captured: JobManifest, options: EvaluationOptions) -> Cluster:
    """The cluster that a saved job is simulated on: options that are not set are as captured."""
    return _with_tables(chosen_cluster(as_captured(options, captured)), options, captured)


def chosen_cluster(options: ClusterOptions) -> Cluster:
    """The cluster that the options alone describe.

    Raises:
        InputError: no such cluster is known.
    """
    from presim.hardware.cluster_choice import choose_cluster

    return choose_cluster(**{field.name: getattr(options, field.name) for field in dataclasses.fields(ClusterOptions)})


def as_captured(options: EvaluationOptions, captured: JobManifest) -> EvaluationOptions:
    """The options, completed by the captured job's cluster; a cluster file is complete by itself."""
    if options.cluster:
        return options
    gpus_per_node, world_size = options.gpus_per_node, options.world_size
    if not any((options.nodes, gpus_per_node, world_size)):
        gpus_per_node = min(captured.gpus_per_node, captured.world_size)
    if not (options.nodes and gpus_per_node):
        _check_spread(options, captured)
        world_size = world_size or captured.world_size
    completed = dataclasses.replace(
        options, gpu=options.gpu or _captured_part("gpu", captured), gpus_per_node=gpus_per_node, world_size=world_size
    )
    if completed.gpu != captured.gpu:
        return completed  # with its usual node and fabric
    completed = dataclasses.replace(completed, node=options.node or _captured_part("node", captured))
    if completed.node != captured.node:
        return completed
    return dataclasses.replace(completed, fabric=options.fabric or _captured_part("fabric", captured))


def _check_spread(options: EvaluationOptions, captured: JobManifest) -> None:
    """Check that the captured ranks can be spread over the nodes, if only the number of these is given.

    Raises:
        InputError: it is no divisor of their number.
    """
    nodes, world, per_node = options.nodes, captured.world_size, captured.gpus_per_node
    if nodes and not options.world_size and world % nodes:
        raise InputError(
            f"the {world} captured ranks cannot be spread over {nodes} nodes evenly; for {nodes * per_node} ranks, "
            f"{per_node} on each node, add --gpus-per-node {per_node}"
        )


def _with_tables(cluster: Cluster, options: EvaluationOptions, captured: JobManifest) -> Cluster:
    """The cluster with the captured cluster file's tables, if its parts are the same.

    Raises:
        InputError: the file has groups of nodes, and the cluster has another size.
    """
    import msgspec

    from presim.hardware.cluster import NodeGroup

    parts = (cluster.gpu.id, cluster.node.id, cluster.fabric.id)
    if options.cluster or parts != (captured.gpu, captured.node, captured.fabric):
        return cluster
    tables = captured.cluster_tables
    groups = to_type(tables.groups, tuple[NodeGroup, ...])
    if groups and (cluster.world_size, cluster.gpus_per_node) != (captured.world_size, captured.gpus_per_node):
        raise InputError(
            f"the job was captured for {len(groups)} groups of nodes with {captured.world_size} GPUs, and they do not "
            f"say what {cluster.world_size} GPUs would be: name a cluster file with --cluster"
        )
    return msgspec.structs.replace(
        cluster, nccl=tables.nccl, collectives=tables.collectives, network=tables.network, groups=groups
    )


def _captured_part(part: str, captured: JobManifest) -> str | None:
    """The catalogue id of a part of the captured cluster; None if an older trace lacks it."""
    from presim.hardware import Gpu, catalogue
    from presim.hardware.cluster import Fabric, Node

    kinds: dict[str, type[Gpu | Node | Fabric]] = {"gpu": Gpu, "node": Node, "fabric": Fabric}
    name: str = getattr(captured, part)
    if name and name not in catalogue.ids(kinds[part]):
        raise InputError(
            f"the trace was captured for a {part} of your own, {name!r}: name its file again with --{part} or --cluster"
        )
    return name or None


def engine_options(options: EvaluationOptions) -> Options:
    """The settings of the simulation."""
    return Options.of(
        host_factor=options.host_factor,
        host_time=options.host_time,
        contention=options.contention,
        overlap=model_of(options.overlap_model),
    )


def what_if_changes(options: EvaluationOptions) -> Changes:
    """The what-if changes of hardware and prices.

    Raises:
        InputError: one of them cannot be read.
    """
    from presim.cost.estimator_selection import selection_of
    from presim.evaluation.what_if import changes_of

    failed = options.fail if isinstance(options, SimulateOptions) else ()
    return changes_of(
        options.bandwidth,
        options.stragglers,
        options.scale_op,
        failed,
        isolated_groups=not options.contention,
        estimators=selection_of(options.estimator, [folder for folder in options.price_folders if folder.is_dir()]),
    )


def cluster_of_more(target: Cluster, world_size: int) -> Cluster:
    """The cluster with as many nodes as a second capture needs.

    Raises:
        InputError: it has no more GPUs than the first, or not as many on each node.
    """
    per_node = target.gpus_per_node
    if world_size <= target.world_size or world_size % per_node or target.groups:
        raise InputError(
            f"--wider {world_size} is to be a multiple of the {per_node} GPUs of a node, and more than the "
            f"{target.world_size} of the job, on nodes that are alike; choose {2 * target.world_size}, for example"
        )
    return msgspec.structs.replace(target, nodes=world_size // per_node)
