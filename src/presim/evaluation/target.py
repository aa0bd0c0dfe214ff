"""Options of the engine and facts about the GPU for the cluster that is predicted."""

from __future__ import annotations

import dataclasses

from presim.analysis.summarise import Device
from presim.analysis.time.flops import arithmetic_dtype
from presim.engine.calls import NO_CALLS
from presim.engine.simulation_options import Options
from presim.hardware import catalogue
from presim.hardware.cluster import Cluster
from presim.hardware.host import host_factor
from presim.trace.schema import Manifest, Measured, Trace


def engine_options(options: Options, cluster: Cluster, manifest: Manifest, undisturbed: bool) -> Options:
    """Options with the host factor of the cluster, if none is set. Host times of a profile include library calls."""
    if manifest.measured is not None:
        return dataclasses.replace(
            options, host_factor=_of_profile(options, cluster, manifest.measured), calls=NO_CALLS
        )
    options = dataclasses.replace(options, cores_per_rank=cluster.node.cores / cluster.gpus_per_node)
    if options.host_factor is not None:
        return options
    server = cluster.node.host_factor
    factor = host_factor(manifest.reference_host, manifest.host_probe_ns, server, undisturbed=undisturbed)
    return dataclasses.replace(options, host_factor=factor)


def _of_profile(options: Options, cluster: Cluster, measured: Measured) -> float:
    """Host factor of a profile: 1 on its own type of node, else the ratio of the nodes' factors."""
    if options.host_factor is not None or measured.node == cluster.node.id:
        return 1.0 if options.host_factor is None else options.host_factor
    before = host_factor(True, server=catalogue.node(measured.node).host_factor)
    return round(host_factor(True, server=cluster.node.host_factor) / before, 3)


def host_factor_source(options: Options, cluster: Cluster) -> str:
    """Source of the host factor, as a clause."""
    if options.host_factor is not None:
        return "as --host-factor says"
    node = cluster.node
    return f"as for hosts of {node.id}" if node.host_factor else "as for a typical GPU server"


def device_of(
    cluster: Cluster, trace: Trace, options: Options, host: str = "", slowdown: float | None = None
) -> Device:
    """Facts about a cluster that a result needs.

    ``host``: source of the host factor. ``slowdown``: slowdown of the capturing machine by other work, divided out of
    host time; None: unknown.
    """
    gpu = cluster.gpu
    dtypes = {dtype for signature in trace.signatures if (dtype := arithmetic_dtype(signature))}
    peaks = {dtype: peak for dtype in sorted(dtypes) if (peak := gpu.peak(dtype))}
    context = gpu.source("context_MiB")
    return Device(
        gpu=gpu.id,
        gpu_name=gpu.name,
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
        memory_bytes=gpu.memory_bytes,
        context_bytes=gpu.context_bytes,
        context_source=context.text if context else f"hardware catalogue, {gpu.id}",
        peak_flops=peaks,
        contention=options.contention,
        host_factor=options.host_factor_of(trace.manifest),
        host=host,
        slowdown=slowdown,
        calls=options.calls,
        launch_latency_ns=options.launch_latency_ns,
        power_w=gpu.power_w,
    )
