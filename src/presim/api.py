"""The verbs as functions, for notebooks and other programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from presim.engine.options import Options
from presim.errors import InputError
from presim.pipeline import Evaluation, evaluate
from presim.result import Result

if TYPE_CHECKING:
    from presim.capture.launchers.launch import Launch, Shape
    from presim.hardware import Gpu
    from presim.hardware.cluster import Cluster


_PROFILE_S = 600.0  # spent on measuring what a table lacks


def simulate(
    directory: str | os.PathLike[str],
    *,
    gpu: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    world_size: int | None = None,
    cluster: str | None = None,
    rank: int | None = None,
    contention: bool = True,
    host_factor: float | None = None,
    host_time: bool = True,
    prices: Sequence[str | os.PathLike[str]] = (),
) -> Result:
    """Price and simulate a saved trace; the arguments are the options of ``presim simulate``."""
    return evaluate_saved(
        directory,
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        world_size=world_size,
        cluster=cluster,
        rank=rank,
        contention=contention,
        host_factor=host_factor,
        host_time=host_time,
        prices=prices,
    ).result


def run(
    script: str | os.PathLike[str],
    *args: str,
    gpu: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    world_size: int | None = None,
    cluster: str | None = None,
    rank: int | None = None,
    ranks: str = "auto",
    checks: int | None = None,
    steps: int = 3,
    limit: float = 600.0,
    save: str | os.PathLike[str] | None = None,
    module: bool = False,
    contention: bool = True,
    host_factor: float | None = None,
    prices: Sequence[str | os.PathLike[str]] = (),
    values: Sequence[str] = (),
    host_time: bool = True,
    live: bool = False,
    profile_missing: bool = False,
    quiet: bool = False,
) -> Result:
    """Capture a script and predict what a cluster would make of it; the arguments are the options of ``presim run``.

    ``script`` with ``args`` may be a launch command: ``run("torchrun", "--nnodes", "16", "train.py", gpu=…)``.
    The script runs in a process of its own; ``quiet`` drops what it prints. With ``live`` its
    clocks show simulated time.

    Raises:
        InputError: an option or the script cannot be used.
        CaptureError: the script cannot be run here, or left nothing to price.
    """
    return evaluate_run(
        script,
        *args,
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        world_size=world_size,
        cluster=cluster,
        rank=rank,
        ranks=ranks,
        checks=checks,
        steps=steps,
        limit=limit,
        save=save,
        module=module,
        contention=contention,
        host_factor=host_factor,
        prices=prices,
        values=values,
        host_time=host_time,
        live=live,
        profile_missing=profile_missing,
        drop_output=quiet,
    ).result


def evaluate_run(
    script: str | os.PathLike[str],
    *args: str,
    gpu: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    world_size: int | None = None,
    cluster: str | None = None,
    rank: int | None = None,
    ranks: str = "auto",
    checks: int | None = None,
    steps: int = 3,
    limit: float = 600.0,
    save: str | os.PathLike[str] | None = None,
    module: bool = False,
    contention: bool = True,
    host_factor: float | None = None,
    prices: Sequence[str | os.PathLike[str]] = (),
    values: Sequence[str] = (),
    host_time: bool = True,
    live: bool = False,
    profile_missing: bool = False,
    script_to_stderr: bool = False,
    drop_output: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """`run` with all that reports are made of; ``script_to_stderr`` keeps standard output for the result."""
    from presim.capture.launchers.launch import Shape
    from presim.capture.ranks.selection import select
    from presim.capture.run import Request, capture
    from presim.capture.script.host_probe import probe_ns
    from presim.cost.given import check, holds_prices
    from presim.hardware.host import host_factor as usual_factor
    from presim.live.server import LiveServer
    from presim.profile.job import profile
    from presim.trace import store

    launch = _launch(os.fspath(script), args, module)
    target = _target(launch, gpu, cluster, Shape(nodes, gpus_per_node, world_size))
    if save is not None:
        store.check_writable(save)
    stdout = 2 if script_to_stderr else subprocess.DEVNULL if drop_output else None
    if live and checks is None:
        checks = 0  # a rank that is only looked at ends early, and the others would wait for it on the one clock
    selection = select(ranks if rank is None else str(rank), target.world_size, checks)
    if live and host_factor is None:  # while the script runs, and after it, host time counts alike
        host_factor = usual_factor(probe_ns())
    options = Options.of(host_factor=host_factor, host_time=host_time, contention=contention)
    folders = [Path(folder) for folder in prices]
    card = _card(folders, target) if profile_missing else None
    check(folders[1:] if card else folders)

    def simulator() -> LiveServer:
        return LiveServer(target, options, live=live, prices=[folder for folder in folders if holds_prices(folder)])

    job = capture(Request(launch, selection, steps, limit, stdout, tuple(values)), target, progress, simulator)
    if save is not None:
        store.save(job.traces, save, stands_for=job.stands_for, checked=job.checked, notes=job.notes)
    if card is not None:
        wanted = [signature for trace in job.traces for signature in trace.signatures]
        profile(wanted, folders[0], _PROFILE_S, card, progress)
    progress("simulating")
    return evaluate(
        job.traces,
        target,
        options,
        rank=job.reported,
        stands_for=job.stands_for,
        checked=job.checked,
        notes=job.notes,
        prices=[folder for folder in folders if holds_prices(folder)],
    )


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


def _launch(script: str, args: tuple[str, ...], module: bool) -> Launch:
    """A launch command, or a script (a file of that name goes first) with its arguments."""
    from presim.capture.launchers.launch import Launch
    from presim.capture.launchers.read import is_command, read_command

    if module or os.path.isfile(script) or not is_command(script):
        return Launch(script, args, module)
    return read_command([script, *args])


def _target(launch: Launch, gpu: str | None, cluster: str | None, asked: Shape) -> Cluster:
    """The cluster that the options and the launch command describe together."""
    from presim.capture.launchers.shape import agreed
    from presim.hardware.choose import choose_cluster

    shape = agreed(launch, asked, described=cluster is not None)
    return choose_cluster(
        gpu=gpu, nodes=shape.nodes, gpus_per_node=shape.per_node, world_size=shape.world, cluster=cluster
    )


def evaluate_saved(
    directory: str | os.PathLike[str],
    *,
    gpu: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    world_size: int | None = None,
    cluster: str | None = None,
    rank: int | None = None,
    contention: bool = True,
    host_factor: float | None = None,
    host_time: bool = True,
    prices: Sequence[str | os.PathLike[str]] = (),
) -> Evaluation:
    """`simulate` with all that reports are made of; what is not given is as it was captured."""
    from presim.hardware.choose import choose_cluster
    from presim.trace import spans, store

    job = store.load(directory)
    captured = job.manifest
    if not any((cluster, nodes, gpus_per_node, world_size)):
        gpus_per_node = min(captured.gpus_per_node, captured.world_size)
    if not cluster and not (nodes and gpus_per_node):
        world_size = world_size or captured.world_size
    target = choose_cluster(
        gpu=gpu or (None if cluster else captured.gpu),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        world_size=world_size,
        cluster=cluster,
    )
    traces = [job.traces[number] for number in sorted(job.traces)]
    options = Options.of(host_factor=host_factor, host_time=host_time, contention=contention)
    return evaluate(
        traces,
        target,
        options,
        rank=rank,
        stands_for=captured.others(),
        checked=spans.from_text(captured.checked),
        notes=captured.notes,
        prices=[Path(folder) for folder in prices],
    )
