"""Capture a script or a launch command, and evaluate it (`presim run`)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING

import msgspec

from presim.errors import InputError
from presim.evaluation.options import ClusterOptions, RunOptions
from presim.system.interrupts import caught, noted
from presim.verbs.target import chosen_cluster, cluster_of_more, engine_options, what_if_changes

if TYPE_CHECKING:
    from presim.capture.launchers.launch import Launch
    from presim.capture.processes.blocked import BlockedRanks
    from presim.capture.processes.forks import Forks
    from presim.evaluation.evaluate_traces import Evaluation
    from presim.evaluation.live.server import LiveServer
    from presim.hardware import Gpu
    from presim.hardware.cluster import Cluster
    from presim.result import Result
    from presim.trace.job import Job
    from presim.trace.schema import Trace

Progress = Callable[[str], None]  # takes a description of the current work

_PROFILE_S = 600.0  # spent on measuring what a table lacks


def run_and_evaluate(
    command: Sequence[str],
    options: RunOptions,
    *,
    stdout: int | None = None,
    progress: Progress = lambda text: None,
    forks: Forks | None = None,
    keeps_finished: bool = False,
) -> Evaluation:
    """Capture a script or a launch command with its arguments, and evaluate it.

    ``stdout``: file descriptor for the script's output; None: presim's. ``forks`` starts its ranks and stays with the
    caller. ``keeps_finished``: an interrupt gives the result of the ranks and draws that are captured by then, if any.

    Raises:
        InputError: an option or the script cannot be used.
        CaptureError: the script cannot be run here, or left nothing to price.
    """
    from presim.capture.device_values.policies import seeded
    from presim.cost.estimators import check
    from presim.system.files.write import has_working_folder
    from presim.trace import job_store

    if not has_working_folder():  # the script's processes would fail there
        raise InputError("the working directory was deleted; change to another one")
    if options.draws > 1:
        seeded(options.values, 0)
    launch = _launch(command, options.module)
    target = _target(launch, options)
    if options.save is not None:
        job_store.check_writable(options.save)
    wider = None if options.wider is None else cluster_of_more(target, options.wider)
    folders = options.price_folders
    card = _gpu_to_measure(folders, target) if options.profile_missing else None
    check(folders[1:] if card else folders)
    options = _check_live_options(options) if options.live else options
    with noted("the capture is lost, because no rank had run to its end; --steps N makes it shorter"):
        job = _capture(launch, target, options, stdout, progress, forks, keeps_finished)
    if options.save is not None:
        job.save(options.save)
        if wider is not None and not job.partial:
            progress(f"capturing again, on {wider.world_size} GPUs")
            with noted(_how_to_continue(options.save)):
                second = _capture(launch, wider, options, DEVNULL, progress, forks)
            second.save(Path(options.save) / job_store.WIDER)
    with noted(_how_to_continue(options.save)):
        if card is not None and not job.partial:
            _measure(job.traces, folders[0], card, progress)
        progress("simulating")
        first = _evaluate_capture(job, target, options)
    if options.draws == 1 or first.result.step_time_s is None or job.partial:
        return first

    def run_again(options: RunOptions) -> Result:
        return _evaluate_capture(_capture(launch, target, options, DEVNULL, progress, forks), target, options).result

    return _over_draws(first, options, run_again, progress, keeps_finished=keeps_finished)


def _how_to_continue(saved: str | os.PathLike[str] | None) -> str:
    """A clause for an interrupt before the simulation: where the capture is, or that it is lost."""
    if saved is None:
        return "the capture is lost; --save DIR keeps it for `presim simulate DIR`"
    return f"the capture is in {os.fspath(saved)}: go on with `presim simulate {os.fspath(saved)}`"


def _as_partial(evaluation: Evaluation, note: str = "") -> Evaluation:
    """The evaluation marked as partial, with ``note`` first; empty: it has a note already."""
    notes = [note, *evaluation.result.notes] if note else evaluation.result.notes
    return dataclasses.replace(evaluation, result=msgspec.structs.replace(evaluation.result, notes=notes, partial=True))


def _over_draws(
    first: Evaluation,
    options: RunOptions,
    run_again: Callable[[RunOptions], Result],
    progress: Progress,
    *,
    keeps_finished: bool,
) -> Evaluation:
    """Percentiles of the step time over captures with other expert routings; their output is discarded.

    Raises:
        CaptureError: the script fails with another draw.
    """
    from presim.analysis.notes.routing_draws import over_draws
    from presim.capture.device_values.policies import seeded
    from presim.errors import CaptureError

    times = [first.result.step_time_s or 0.0]
    with caught(keeps_finished) as stop:
        for further in range(1, options.draws):
            progress(f"drawing experts again, {further + 1} of {options.draws}")
            routing = seeded(options.values, further)
            result = run_again(dataclasses.replace(options, values=(*options.values, f"routing={routing}")))
            if result.step_time_s is None or result.exit != first.result.exit:
                ended = f"the script ends differently ({result.exit}): {result.error}"
                raise CaptureError(f"with routing={routing} {ended}")
            times.append(result.step_time_s)
    drawn = dataclasses.replace(first, result=over_draws(first.result, seeded(options.values, 0), times))
    if not stop.is_partial:
        return drawn
    return _as_partial(drawn, f"Only {len(times)} of {options.draws} draws ran, because presim was interrupted.")


def _evaluate_capture(job: Job, target: Cluster, options: RunOptions) -> Evaluation:
    """Evaluate a capture; price folders without any measurement are skipped."""
    from presim.cost.estimators import holds_prices
    from presim.evaluation.evaluate_traces import evaluate

    evaluation = evaluate(
        job,
        target,
        engine_options(options),
        rank=job.reported_rank,
        prices=[folder for folder in options.price_folders if holds_prices(folder)],
        changes=what_if_changes(options),
    )
    return _as_partial(evaluation) if job.partial else evaluation


def _launch(command: Sequence[str], module: bool) -> Launch:
    """A launch command, or a script with its arguments; a file of that name takes precedence."""
    from presim.capture.launchers.launch import Launch
    from presim.capture.launchers.launch_command import (
        check_nested,
        check_script,
        is_command,
        is_launcher,
        read_command,
    )
    from presim.capture.launchers.programs import console_script

    script, *args = command
    if module and is_launcher(script):
        return read_command(["python", "-m", *command])
    if not module and not os.path.isfile(script) and is_command(script):
        return read_command(command)
    console_path = None if module or os.path.isfile(script) or script.endswith(".py") else console_script(script)
    if console_path is None and not module:
        check_script(command)
    launch = Launch(console_path or script, tuple(args), module)
    check_nested(launch)
    return launch


def _target(launch: Launch, options: ClusterOptions) -> Cluster:
    """The cluster that the options and the launch command describe together."""
    from presim.capture.launchers.launch import Shape
    from presim.capture.launchers.shape import merge_shapes

    requested_shape = Shape(options.nodes, options.gpus_per_node, options.world_size)
    shape = merge_shapes(launch, requested_shape, described=options.cluster is not None)
    return chosen_cluster(
        dataclasses.replace(options, nodes=shape.nodes, gpus_per_node=shape.per_node, world_size=shape.world)
    )


def cluster_of_command(command: Sequence[str], options: RunOptions) -> Cluster:
    """The cluster that the options and a launch command describe together.

    Raises:
        InputError: they contradict each other, or no such cluster is known.
    """
    return _target(_launch(command, options.module), options)


def capture_command(
    command: Sequence[str],
    target: Cluster,
    options: RunOptions,
    *,
    stdout: int | None = None,
    hides_output: bool = False,
) -> Job:
    """Capture a script or a launch command with its arguments on the emulated cluster.

    ``hides_output``: show what the script prints, warnings included, only if it fails.

    Raises:
        InputError: an option or the script cannot be used.
        CaptureError: the script cannot be run here, or left nothing to price.
    """
    launch = _launch(command, options.module)
    return _capture(launch, target, options, stdout, lambda text: None, None, hides_output=hides_output)


def _gpu_to_measure(folders: Sequence[Path], target: Cluster) -> Gpu:
    """This machine's GPU, which must be the cluster's, to measure missing prices on."""
    from presim.cost.profile.run_profile import local_gpu

    if not folders:
        raise InputError("--profile-missing needs a folder for its measurements: add --prices DIR")
    card = local_gpu()
    if card.id != target.gpu.id:
        raise InputError(
            f"this machine has a {card.name} ({card.id}), the cluster {target.gpu.id}: measurements here would not "
            f"be used: leave --profile-missing out, or name --gpu {card.id}"
        )
    return card


def _measure(traces: Sequence[Trace], folder: Path, card: Gpu, progress: Progress) -> None:
    from presim.cost.profile.run_profile import profile

    signatures = [signature for trace in traces for signature in trace.signatures]
    profile(signatures, folder, _PROFILE_S, card, progress)


def _check_live_options(options: RunOptions) -> RunOptions:
    """The options for a live clock, with which ranks cannot be compared.

    Raises:
        InputError: other ranks are to be compared.
    """
    if options.checks:
        raise InputError(
            f"--check {options.checks} runs rank 0 again beside the ranks to compare, which a live clock rules "
            "out: leave out --check or --live"
        )
    return options


def _first_of_each_group(cluster: Cluster) -> list[int]:
    """The first rank of each kind of nodes: a live clock needs a running rank on each."""
    first: dict[str | None, int] = {}
    for node in range(cluster.nodes):
        rank = node * cluster.gpus_per_node
        group = cluster.group_of(rank)
        first.setdefault(None if group is None else group.name, rank)
    return sorted(first.values())


def _capture(
    launch: Launch,
    target: Cluster,
    options: RunOptions,
    stdout: int | None,
    progress: Progress,
    forks: Forks | None,
    keeps_finished: bool = False,
    *,
    hides_output: bool = False,
) -> Job:
    from presim.capture.capture_job import CaptureRequest, capture
    from presim.capture.ranks.auto import SMALL_WORLD
    from presim.capture.ranks.rank_selection import Checks, select
    from presim.hardware.host import ORDINARY, host_factor

    ranks = options.ranks if options.rank is None else str(options.rank)
    if ranks == "auto" and options.live and target.groups and target.world_size > SMALL_WORLD:
        ranks = ",".join(map(str, _first_of_each_group(target)))
    count = 0 if options.live and target.world_size > SMALL_WORLD else options.checks
    selection = select(ranks, target.world_size, Checks(count, options.check_time))
    request = CaptureRequest(
        launch,
        selection,
        options.steps,
        options.limit,
        stdout,
        tuple(options.values),
        options.sanitize,
        keeps_finished,
        hides_output,
    )

    def simulator(blocked: BlockedRanks) -> LiveServer:
        # Here, because ranks import PyTorch meanwhile.
        from presim.cost.estimators import holds_prices
        from presim.evaluation import evaluate_traces  # noqa: F401 - for what follows the capture
        from presim.evaluation.live.server import LiveServer

        prices = [folder for folder in options.price_folders if holds_prices(folder)]
        engine = engine_options(options)
        measured = engine.host_factor is None  # as for a trace: host time outside of steps is not denoised
        return LiveServer(
            target,
            engine,
            live=options.live,
            prices=prices,
            blocked=blocked,
            as_it_came=1 / ORDINARY if measured else 1.0,
            host_factors=(lambda seen: host_factor(True, server=seen.node.host_factor)) if measured else None,
        )

    return capture(request, target, progress, simulator, forks)
