"""What ``presim run`` and ``presim simulate`` do, from their options to all that reports are made of."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING

from presim.engine.options import Options
from presim.errors import InputError
from presim.options import ClusterOptions, EvaluationOptions, RunOptions
from presim.pipeline import Evaluation, evaluate

if TYPE_CHECKING:
    from presim.capture.launchers.launch import Launch
    from presim.capture.processes.blocked import Blocked
    from presim.capture.processes.forks import Forks
    from presim.capture.run import Capture
    from presim.changes import Changes
    from presim.compose.compare import Agreement
    from presim.compose.plan import Plan
    from presim.hardware import Gpu
    from presim.hardware.cluster import Cluster, Node
    from presim.result import Result
    from presim.trace.schema import Trace
    from presim.trace.store import Job, JobManifest

Progress = Callable[[str], None]  # is told what is being done

_PROFILE_S = 600.0  # spent on measuring what a table lacks


def run_and_evaluate(
    command: Sequence[str],
    options: RunOptions,
    *,
    stdout: int | None = None,
    progress: Progress = lambda text: None,
    forks: Forks | None = None,
) -> Evaluation:
    """Capture a script or a launch command with its arguments, and evaluate it.

    ``stdout``: file descriptor for what the script prints; None: ours. ``forks`` starts its ranks and stays with the
    caller.

    Raises:
        InputError: an option or the script cannot be used.
        CaptureError: the script cannot be run here, or left nothing to price.
    """
    from presim.capture.device_values.policies import seeded
    from presim.cost.estimators import check
    from presim.trace import store

    if options.draws > 1:
        seeded(options.values, 0)
    launch = _launch(command, options.module)
    target = _target(launch, options)
    if options.save is not None:
        store.check_writable(options.save)
    folders = options.price_folders
    card = _card(folders, target) if options.profile_missing else None
    check(folders[1:] if card else folders)
    options = _on_one_clock(options) if options.live else options
    job = _capture(launch, target, options, stdout, progress, forks)
    if options.save is not None:
        store.save(job.traces, options.save, stands_for=job.stands_for, coverage=job.coverage, notes=job.notes)
    if card is not None:
        _measure(job.traces, folders[0], card, progress)
    progress("simulating")
    first = _evaluated(job, target, options)
    if options.draws == 1 or first.result.step_time_s is None:
        return first

    def again(options: RunOptions) -> Result:
        return _evaluated(_capture(launch, target, options, DEVNULL, progress, forks), target, options).result

    return _over_draws(first, options, again, progress)


def _over_draws(
    first: Evaluation, options: RunOptions, again: Callable[[RunOptions], Result], progress: Progress
) -> Evaluation:
    """With percentiles over captures whose tokens go to other experts; what their scripts print is dropped.

    Raises:
        CaptureError: the script fails with another draw.
    """
    from presim.analysis.notes.routing_draws import over_draws
    from presim.capture.device_values.policies import seeded
    from presim.errors import CaptureError

    times = [first.result.step_time_s or 0.0]
    for further in range(1, options.draws):
        progress(f"drawing experts again, {further + 1} of {options.draws}")
        routing = seeded(options.values, further)
        result = again(dataclasses.replace(options, values=(*options.values, f"routing={routing}")))
        if result.step_time_s is None or result.exit != first.result.exit:
            raise CaptureError(f"with routing={routing} the script ends otherwise ({result.exit}): {result.error}")
        times.append(result.step_time_s)
    return dataclasses.replace(first, result=over_draws(first.result, seeded(options.values, 0), times))


def _evaluated(job: Capture, target: Cluster, options: RunOptions) -> Evaluation:
    """What a capture comes to; folders in which nothing could be measured hold no prices."""
    from presim.cost.estimators import holds_prices

    return evaluate(
        job.traces,
        target,
        _engine_options(options),
        rank=job.reported,
        stands_for=job.stands_for,
        coverage=job.coverage,
        notes=job.notes,
        prices=[folder for folder in options.price_folders if holds_prices(folder)],
        changes=_changes(options),
    )


def _changes(options: EvaluationOptions) -> Changes:
    from presim.changes import changes_of

    return changes_of(options.bandwidth, options.stragglers, options.scale_op)


def _launch(command: Sequence[str], module: bool) -> Launch:
    """A launch command, or a script (a file of that name goes first) with its arguments."""
    from presim.capture.launchers.launch import Launch
    from presim.capture.launchers.programs import console_script
    from presim.capture.launchers.read import check_nested, check_script, is_command, is_launcher, read_command

    script, *args = command
    if module and is_launcher(script):
        return read_command(["python", "-m", *command])
    if not module and not os.path.isfile(script) and is_command(script):
        return read_command(command)
    found = None if module or os.path.isfile(script) or script.endswith(".py") else console_script(script)
    if found is None and not module:
        check_script(command)
    launch = Launch(found or script, tuple(args), module)
    check_nested(launch)
    return launch


def _target(launch: Launch, options: ClusterOptions) -> Cluster:
    """The cluster that the options and the launch command describe together."""
    from presim.capture.launchers.launch import Shape
    from presim.capture.launchers.shape import agreed

    asked = Shape(options.nodes, options.gpus_per_node, options.world_size)
    shape = agreed(launch, asked, described=options.cluster is not None)
    return _chosen(
        dataclasses.replace(options, nodes=shape.nodes, gpus_per_node=shape.per_node, world_size=shape.world)
    )


def _chosen(options: ClusterOptions) -> Cluster:
    from presim.hardware.choose import choose_cluster

    return choose_cluster(**{field.name: getattr(options, field.name) for field in dataclasses.fields(ClusterOptions)})


def cluster_of_command(command: Sequence[str], options: RunOptions) -> Cluster:
    """The cluster that the options and a launch command describe together.

    Raises:
        InputError: they contradict each other, or no such cluster is known.
    """
    return _target(_launch(command, options.module), options)


def capture_command(
    command: Sequence[str], target: Cluster, options: RunOptions, *, stdout: int | None = None
) -> Capture:
    """Capture a script or a launch command with its arguments on the emulated cluster.

    Raises:
        InputError: an option or the script cannot be used.
        CaptureError: the script cannot be run here, or left nothing to price.
    """
    return _capture(_launch(command, options.module), target, options, stdout, lambda text: None, None)


def cluster_of_saved(directory: str | os.PathLike[str], options: EvaluationOptions) -> Cluster:
    """The cluster that a saved job is simulated on: the options', completed by what was captured.

    Raises:
        InputError: there is no job, or no such cluster is known.
    """
    from presim.trace import store

    return _cluster_of(store.load(directory).manifest, options)


def _cluster_of(captured: JobManifest, options: EvaluationOptions) -> Cluster:
    return _with_tables(_chosen(as_captured(options, captured)), options, captured)


def _card(folders: Sequence[Path], target: Cluster) -> Gpu:
    """The GPU of this machine, on which what a table lacks is to be measured: the cluster's."""
    from presim.profile.job import here

    if not folders:
        raise InputError("what is measured needs a place: name a folder with --prices DIR beside --profile-missing")
    card = here()
    if card.id != target.gpu.id:
        raise InputError(
            f"this machine has a {card.name} ({card.id}), the cluster {target.gpu.id}: what is measured here would not "
            f"be used; leave --profile-missing out, or name --gpu {card.id}"
        )
    return card


def _measure(traces: Sequence[Trace], folder: Path, card: Gpu, progress: Progress) -> None:
    from presim.profile.job import profile

    wanted = [signature for trace in traces for signature in trace.signatures]
    profile(wanted, folder, _PROFILE_S, card, progress)


def _on_one_clock(options: RunOptions) -> RunOptions:
    """With a live clock all ranks of a small world run; of a larger one none are compared.

    Raises:
        InputError: other ranks are to be compared.
    """
    if options.checks:
        raise InputError(
            f"--check {options.checks} runs rank 0 again beside the ranks to compare, which a live clock cannot show: "
            "leave out --check or --live"
        )
    return options


def _capture(
    launch: Launch, target: Cluster, options: RunOptions, stdout: int | None, progress: Progress, forks: Forks | None
) -> Capture:
    from presim.capture.ranks.auto import SMALL_WORLD
    from presim.capture.ranks.selection import Checks, select
    from presim.capture.run import Request, capture
    from presim.cost.estimators import holds_prices
    from presim.hardware.host import ORDINARY, host_factor
    from presim.live.server import LiveServer

    ranks = options.ranks if options.rank is None else str(options.rank)
    count = 0 if options.live and target.world_size > SMALL_WORLD else options.checks
    selection = select(ranks, target.world_size, Checks(count, options.check_time))
    request = Request(launch, selection, options.steps, options.limit, stdout, tuple(options.values), options.sanitize)

    def simulator(blocked: Blocked) -> LiveServer:
        prices = [folder for folder in options.price_folders if holds_prices(folder)]
        engine, as_it_came = _engine_options(options), 1.0
        if engine.host_factor is None:  # as for a trace: what has no steps counts as it comes
            engine = dataclasses.replace(engine, host_factor=host_factor(True, server=target.node.host_factor))
            as_it_came = 1 / ORDINARY
        return LiveServer(target, engine, live=options.live, prices=prices, blocked=blocked, as_it_came=as_it_came)

    return capture(request, target, progress, simulator, forks)


def _engine_options(options: EvaluationOptions) -> Options:
    return Options.of(host_factor=options.host_factor, host_time=options.host_time, contention=options.contention)


def compose_and_evaluate(
    model: str,
    plan: Plan,
    options: EvaluationOptions,
    *,
    dtype: str = "bfloat16",
    save: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Compose a training job from a model's graph and a plan, and evaluate it.

    Raises:
        InputError: the model cannot be traced, the plan cannot be, or no such cluster is known.
    """
    return _compose(model, plan, options, dtype=dtype, save=save)[0]


def _compose(
    model: str, plan: Plan, options: EvaluationOptions, *, dtype: str, save: str | os.PathLike[str] | None
) -> tuple[Evaluation, tuple[Trace, ...]]:
    from presim.compose.compose import compose
    from presim.cost.estimators import holds_prices
    from presim.graph.take import open_graph
    from presim.trace import store

    if save is not None:
        store.check_writable(save)
    target = _chosen(options)
    job = compose(open_graph(model, dtype), plan, target)
    if save is not None:
        store.save(list(job.traces), save, stands_for=job.stands_for, notes=job.notes)
    evaluation = evaluate(
        job.traces,
        target,
        _engine_options(options),
        stands_for=job.stands_for,
        notes=job.notes,
        prices=[folder for folder in options.price_folders if holds_prices(folder)],
        composed=True,
        changes=_changes(options),
    )
    return evaluation, job.traces


def compose_like(
    model: str,
    directory: str | os.PathLike[str],
    said: Mapping[str, object],
    options: EvaluationOptions,
    *,
    plan_file: str | None = None,
    dtype: str = "bfloat16",
    save: str | os.PathLike[str] | None = None,
) -> tuple[Evaluation, Agreement]:
    """Compose what a saved job ran, on its cluster, and compare both.

    The plan is read from the captured trace, then from ``plan_file``; what is ``said`` wins.

    Raises:
        InputError: there is no such job, the model cannot be traced, or the plan cannot be.
    """
    from presim.compose.compare import Figure, compare
    from presim.compose.like import plan_of
    from presim.compose.plan import read_plan
    from presim.trace import store

    job = store.load(directory)
    plan = read_plan(plan_file, said, plan_of(job.traces[min(job.traces)], said))
    theirs = evaluate_saved(directory, options).result
    evaluation, traces = _compose(model, plan, as_captured(options, job.manifest), dtype=dtype, save=save)
    mine = evaluation.result
    figures = [
        Figure("step time", "s", theirs.step_time_s or 0.0, mine.step_time_s or 0.0),
        Figure("peak allocated", "bytes", theirs.memory.peak_allocated_bytes, mine.memory.peak_allocated_bytes),
        Figure("peak reserved", "bytes", theirs.memory.peak_reserved_bytes, mine.memory.peak_reserved_bytes),
    ]
    return evaluation, compare(job.traces, {trace.manifest.rank: trace for trace in traces}, figures)


def evaluate_saved(directory: str | os.PathLike[str], options: EvaluationOptions) -> Evaluation:
    """Evaluate a saved trace; what the options do not say is as it was captured.

    Raises:
        InputError: there is no trace, it does not fit the cluster, or no such cluster is known.
    """
    from presim.trace import store

    job = store.load(directory)
    captured = job.manifest
    changes = _changes(options)
    target = _cluster_of(captured, options)
    traces, stands_for, scaled = _at_size(job, target.world_size)
    return evaluate(
        traces,
        target,
        _engine_options(options),
        rank=options.rank,
        stands_for=stands_for,
        coverage=None if scaled else captured.coverage,
        notes=[*scaled, *captured.notes],
        prices=options.price_folders,
        changes=changes,
    )


def _at_size(job: Job, world_size: int) -> tuple[list[Trace], Mapping[int, Sequence[int]], list[str]]:
    """A job's traces at a world size, who stands for whom, and what a reader should know of it."""
    from presim.trace.rescale import at_world_size

    traces = [job.traces[number] for number in sorted(job.traces)]
    if world_size == job.manifest.world_size:
        return traces, job.manifest.others(), []
    return at_world_size(traces, job.manifest.others(), world_size)


def as_captured(options: EvaluationOptions, captured: JobManifest) -> EvaluationOptions:
    """The options, completed by the cluster that was captured for; a cluster's file says all by itself."""
    if options.cluster:
        return options
    gpus_per_node, world_size = options.gpus_per_node, options.world_size
    if not any((options.nodes, gpus_per_node, world_size)):
        gpus_per_node = min(captured.gpus_per_node, captured.world_size)
    if not (options.nodes and gpus_per_node):
        world_size = world_size or captured.world_size
    completed = dataclasses.replace(
        options, gpu=options.gpu or _again("gpu", captured), gpus_per_node=gpus_per_node, world_size=world_size
    )
    if completed.gpu != captured.gpu:
        return completed  # with the node and fabric that are usual for it
    completed = dataclasses.replace(completed, node=options.node or _again("node", captured))
    if completed.node != captured.node:
        return completed
    return dataclasses.replace(completed, fabric=options.fabric or _again("fabric", captured))


def _with_tables(cluster: Cluster, options: EvaluationOptions, captured: JobManifest) -> Cluster:
    """With what the file of the captured cluster said of its collectives, where no part of it is another."""
    import msgspec

    parts = (cluster.gpu.id, cluster.node.id, cluster.fabric.id)
    if options.cluster or parts != (captured.gpu, captured.node, captured.fabric):
        return cluster
    said = captured.cluster_tables
    return msgspec.structs.replace(cluster, nccl=said.nccl, collectives=said.collectives)


def _again(part: str, captured: JobManifest) -> str | None:
    """The id of a part of the captured cluster; None where an older trace does not say."""
    from presim.hardware import Gpu, catalogue
    from presim.hardware.cluster import Fabric, Node

    kinds: dict[str, type[Gpu | Node | Fabric]] = {"gpu": Gpu, "node": Node, "fabric": Fabric}
    name: str = getattr(captured, part)
    if name and name not in catalogue.ids(kinds[part]):
        raise InputError(
            f"the trace was captured for a {part} of your own, {name!r}: name its file again with --{part} or --cluster"
        )
    return name or None
