"""Capture a job: turn a request into the traces of its distinct ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.machinery
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from presim.capture.device_values.policies import parse
from presim.capture.launchers.launch import Launch
from presim.capture.processes.blocked import BlockedRanks
from presim.capture.processes.forks import Forks
from presim.capture.processes.launch_config import LaunchConfig, Simulator, Wave
from presim.capture.processes.rank_outcome import read_trace
from presim.capture.processes.wave import run_wave
from presim.capture.ranks.auto import capture_differing
from presim.capture.ranks.one_process import capture_one_process, is_one_process
from presim.capture.ranks.policy_trial import PolicyTrial, try_differing_values
from presim.capture.ranks.rank_selection import Selection
from presim.capture.setup.environment import require_torch
from presim.capture.setup.hook_build import ensure_hook, hook_path
from presim.capture.setup.shim import require_shim
from presim.errors import CaptureError, InputError
from presim.hardware.cluster import Cluster
from presim.hardware.device_config import check_is_emulated
from presim.system.interrupts import caught
from presim.trace.job import Job
from presim.trace.schema import FAILED, Kind, Trace
from presim.units import gib

_MOST_TRIAL_TO_CAPTURE = 2  # time of the trial of policy values, beside the time for checks
_NOT_TRIED = "Whether collectives depend on policy values was not tried, because presim was interrupted."
OLDEST_CAPABILITY = (7, 5)  # compute capability; PyTorch's CUDA 13 builds have no code for older GPUs


@dataclasses.dataclass(frozen=True)
class CaptureRequest:
    """What to capture."""

    program: Launch
    selection: Selection
    steps: int | None = None  # stop after this many steps; 0: run to the end; None: until they repeat
    limit_s: float = 600.0  # end a script that runs longer
    script_stdout: int | None = None  # file descriptor for the script's stdout; None: this process's stdout
    values: tuple[str, ...] = ()  # device value policies, as in --values
    sanitize: bool = False  # check that streams synchronise before they use a tensor
    keeps_finished: bool = False  # at an interrupt, return the ranks that have run to their end, if any
    hides_output: bool = False  # show the script's output, warnings included, only if it fails
    hides_failures: bool = False  # nor then: whoever captures says what failed


def capture(
    request: CaptureRequest,
    cluster: Cluster,
    progress: Callable[[str], None] = lambda text: None,
    simulator: Callable[[BlockedRanks], AbstractContextManager[Simulator]] | None = None,
    forks: Forks | None = None,
) -> Job:
    """Run the script on the emulated cluster and return the traces of its ranks.

    ``simulator`` creates a clock simulator for each set of ranks that run together. Without it, the script sees this
    machine's clock, and durations between events say nothing about the device. A script that raises or runs out of
    memory gives traces too: `Manifest.exit` has the outcome. ``forks`` starts the ranks; the caller closes it.

    Raises:
        InputError: the script or the rank does not exist, or PyTorch does not support the GPU.
        CaptureError: the script cannot be run here, took too long, or launched no device work.
    """
    _check(request, cluster)
    values = parse(request.values)
    torch, libraries = require_torch(), require_shim()
    if hook_path(torch) is None:
        progress("compiling the operator hook for this PyTorch (once)")
    hook = ensure_hook(torch)
    imports = ("module" if request.program.module else "script", request.program.script)
    with contextlib.nullcontext(forks) if forks else Forks(imports) as forks:
        setting = LaunchConfig(
            request.program, cluster, libraries, hook, request.limit_s, request.script_stdout, request.hides_output,
            hides_failures=request.hides_failures, sanitize=request.sanitize, values=values, simulator=simulator,
            forks=forks,
        )  # fmt: skip
        started_s = time.monotonic()
        captured_job = _capture_selected(request, setting, progress)
        if is_one_process(captured_job, request.program):
            captured_job = _as_one_process(captured_job, request, setting, progress)
        elif not captured_job.partial:
            capture_s = time.monotonic() - started_s
            limit_s = min(request.limit_s, request.selection.checks.seconds + _MOST_TRIAL_TO_CAPTURE * capture_s)
            trial_setting = dataclasses.replace(setting, limit_s=limit_s)
            captured_job = _with_policy_trial(captured_job, request, trial_setting, progress)
    if not any(_used_device(trace) for trace in captured_job.traces):
        raise CaptureError(_no_work_message(request.program.script, captured_job.traces[0]))
    return captured_job


def _as_one_process(
    copies: Job, request: CaptureRequest, setting: LaunchConfig, progress: Callable[[str], None]
) -> Job:
    """The program as one process; the copies where they had joined a group and one process fails, too."""
    have_failed = _has_failed(copies)
    job = capture_one_process(request.steps, setting, progress, hides_output=not have_failed)
    joined_group = any(trace.manifest.has_process_group for trace in copies.traces)
    return copies if joined_group and _has_failed(job) else job


def _has_failed(job: Job) -> bool:
    return any(trace.manifest.exit in FAILED for trace in job.traces)


def _with_policy_trial(
    captured_job: Job, request: CaptureRequest, setting: LaunchConfig, progress: Callable[[str], None]
) -> Job:
    """Say whether collectives depend on policy values that the program reads, if ranks may be compared at all."""
    selection, exits = request.selection, [trace.manifest.exit for trace in captured_job.traces]
    compares = len(selection.ranks) > 1 if selection.ranks is not None else selection.checks.count != 0
    if setting.cluster.world_size == 1 or not compares or any(outcome in FAILED for outcome in exits):
        return captured_job
    progress("trying policy values that differ by rank")
    trial = PolicyTrial(notes=(_NOT_TRIED,))
    with caught(request.keeps_finished) as stop:
        trial = try_differing_values(captured_job, request.steps, setting, selection.ranks or ())
    coverage = msgspec.structs.replace(captured_job.coverage, dependence=trial.dependence)
    notes = (*captured_job.notes, *trial.notes)
    return dataclasses.replace(captured_job, coverage=coverage, notes=notes, partial=stop.is_partial)


def _no_work_message(script: str, trace: Trace) -> str:
    """The error for a script that launched no device work."""
    sizes = trace.columns["value"][trace.mask(Kind.ALLOC)].astype(int)
    if not len(sizes):
        return (
            f"{script} ended without using the GPU: check that it moves its model to 'cuda', and does so in this "
            "process rather than in one that it starts"
        )
    blocks = f"{len(sizes)} block{'s' if len(sizes) > 1 else ''}"
    return (
        f"{script} allocated {gib(int(sizes.sum()))} on the GPU in {blocks} but launched no work, so there is no step "
        "to time: check that it calls its model"
    )


def _capture_selected(request: CaptureRequest, setting: LaunchConfig, progress: Callable[[str], None]) -> Job:
    if request.selection.ranks is not None:
        return Job(_capture_ranks(request.selection.ranks, request.steps, setting, progress))
    return capture_differing(
        request.steps, request.selection.checks, setting, progress, keeps_finished=request.keeps_finished
    )


def _capture_ranks(
    ranks: tuple[int, ...], steps: int | None, setting: LaunchConfig, progress: Callable[[str], None]
) -> tuple[Trace, ...]:
    doing = "running the script" if len(ranks) == 1 else f"running {len(ranks)} ranks"
    wave = Wave(ranks, steps, stands_for=_exchange_representatives(ranks, setting.cluster.world_size), are_alike=False)
    with run_wave(wave, setting, lambda: progress(doing)) as captured:
        progress("reading the ranks' logs" if len(ranks) > 1 else "reading the log")
        return tuple(read_trace(item, setting) for item in captured)


def _exchange_representatives(ranks: tuple[int, ...], world_size: int) -> dict[int, list[int]]:
    """Map each captured rank to the absent ranks up to the next captured one.

    Absent ranks exchange through the next lower captured rank. They are not assumed to do the same work.
    """
    next_ranks = (*ranks[1:], world_size)
    absent_ranks = {rank: [*range(rank + 1, next_rank)] for rank, next_rank in zip(ranks, next_ranks)}
    absent_ranks[ranks[0]] = [*range(ranks[0]), *absent_ranks[ranks[0]]]
    return absent_ranks


def _used_device(trace: Trace) -> bool:
    return bool(trace.mask(Kind.WORK, Kind.COLLECTIVE).any()) or trace.manifest.exit not in ("ok", "stopped")


def _check(request: CaptureRequest, cluster: Cluster) -> None:
    program = request.program
    if not program.module and not Path(program.script).is_file():
        raise InputError(f"there is no script {program.script!r} (working directory {Path.cwd()})")
    package = program.script.split(".")[0]
    if program.module and not importlib.machinery.PathFinder.find_spec(package, [str(Path.cwd()), *sys.path]):
        raise InputError(f"there is no module {package!r} in {Path.cwd()} or installed for {sys.executable}")
    gpu = cluster.gpu
    check_is_emulated(gpu)
    if (gpu.compute_major, gpu.compute_minor) < OLDEST_CAPABILITY:
        oldest = ".".join(map(str, OLDEST_CAPABILITY))
        raise InputError(
            f"PyTorch's CUDA-13 builds have no code for {gpu.id} (compute capability "
            f"{gpu.compute_major}.{gpu.compute_minor}, oldest is {oldest}): capture for a newer GPU with --save DIR, "
            f"then `presim simulate DIR --gpu {gpu.id}`"
        )
