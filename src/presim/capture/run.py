"""Capture a job: from a request to the traces of the ranks that differ."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from presim.capture.device_values.policies import parse
from presim.capture.launchers.launch import Launch
from presim.capture.processes.blocked import Blocked
from presim.capture.processes.captured import STOPPED, read_trace
from presim.capture.processes.forks import Forks
from presim.capture.processes.launch_config import LaunchConfig, Simulator, Wave
from presim.capture.processes.wave import run_wave
from presim.capture.ranks.auto import capture_differing
from presim.capture.ranks.selection import Selection
from presim.capture.setup.environment import require_torch
from presim.capture.setup.hook_build import ensure_hook, hook_path
from presim.capture.setup.shim import require_shim
from presim.errors import CaptureError, InputError
from presim.hardware.cluster import Cluster
from presim.trace.coverage import RankCoverage
from presim.trace.schema import FAILED, Kind, Trace
from presim.units import gib

OLDEST_CAPABILITY = (7, 5)  # that PyTorch's builds for CUDA 13 hold code for


@dataclasses.dataclass(frozen=True)
class Request:
    """What to capture."""

    program: Launch
    selection: Selection
    steps: int = 3  # stop after so many optimizer steps; 0: run to the end
    limit_s: float = 600.0  # end a script that takes longer
    script_stdout: int | None = None  # file descriptor for what the script prints; None: ours
    values: tuple[str, ...] = ()  # policies, as --values takes them
    sanitize: bool = False  # check that streams wait for each other before they use a tensor
    is_quiet: bool = False  # what the script prints, warnings too, is kept back unless it fails


@dataclasses.dataclass(frozen=True)
class Capture:
    """The traces of a job's captured ranks."""

    traces: tuple[Trace, ...]  # ascending by rank
    stands_for: Mapping[int, Sequence[int]] = dataclasses.field(default_factory=dict)
    coverage: RankCoverage = dataclasses.field(default_factory=RankCoverage)  # which ranks ran and were compared
    notes: tuple[str, ...] = ()

    @property
    def reported(self) -> int:
        """The rank that the figures are of: the first that failed by itself, else the lowest."""
        ends = [trace.manifest for trace in self.traces]
        failed = [end.rank for end in ends if end.exit in FAILED and end.error != STOPPED]
        return failed[0] if failed else ends[0].rank


def capture(
    request: Request,
    cluster: Cluster,
    progress: Callable[[str], None] = lambda text: None,
    simulator: Callable[[Blocked], AbstractContextManager[Simulator]] | None = None,
    forks: Forks | None = None,
) -> Capture:
    """Run the script on the emulated cluster and return what its ranks asked for.

    ``simulator`` makes one for each set of ranks that run together; without, the script sees this machine's clock, and
    durations between events are none of the device's. A script that raises or runs out of memory gives traces too:
    `Manifest.exit` says how each ended. ``forks`` starts its ranks and stays with the caller.

    Raises:
        InputError: no such script, or no such rank.
        CaptureError: it cannot be run here, took too long, or never used CUDA.
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
            request.program, cluster, libraries, hook, request.limit_s, request.script_stdout, request.is_quiet,
            sanitize=request.sanitize, values=values, simulator=simulator, forks=forks,
        )  # fmt: skip
        found = (
            _capture_differing(request, setting, progress)
            if request.selection.ranks is None
            else Capture(_capture_ranks(request.selection.ranks, request.steps, setting, progress))
        )
    if not any(_used_device(trace) for trace in found.traces):
        raise CaptureError(_nothing_to_time(request.program.script, found.traces[0]))
    return found


def _nothing_to_time(script: str, trace: Trace) -> str:
    """Of a script that launched nothing: what it did of the GPU, and what to do."""
    sizes = trace.columns["value"][trace.mask(Kind.ALLOC)].astype(int)
    if not len(sizes):
        return (
            f"{script} ended without asking anything of the GPU: does it move its model to 'cuda', in this process and "
            "not in one that it starts?"
        )
    blocks = f"{len(sizes)} block{'s' if len(sizes) > 1 else ''}"
    return (
        f"{script} allocated {gib(int(sizes.sum()))} on the GPU in {blocks} and launched no work, so there is nothing "
        "to time: does it call its model, and not only create it?"
    )


def _capture_differing(request: Request, setting: LaunchConfig, progress: Callable[[str], None]) -> Capture:
    found = capture_differing(request.steps, request.selection.checks, setting, progress)
    return Capture(found.traces, found.stands_for, found.coverage, found.notes)


def _capture_ranks(
    ranks: tuple[int, ...], steps: int, setting: LaunchConfig, progress: Callable[[str], None]
) -> tuple[Trace, ...]:
    doing = "running the script" if len(ranks) == 1 else f"running {len(ranks)} ranks"
    wave = Wave(ranks, steps, stands_for=_neighbours(ranks, setting.cluster.world_size), are_alike=False)
    with run_wave(wave, setting, lambda: progress(doing)) as captured:
        progress("reading what they asked for" if len(ranks) > 1 else "reading what it asked for")
        return tuple(read_trace(item, setting) for item in captured)


def _neighbours(ranks: tuple[int, ...], world_size: int) -> dict[int, list[int]]:
    """Absent ranks are heard through the next lower one that runs; it is not said that they do as it does."""
    ends = (*ranks[1:], world_size)
    found = {rank: [*range(rank + 1, end)] for rank, end in zip(ranks, ends)}
    found[ranks[0]] = [*range(ranks[0]), *found[ranks[0]]]
    return found


def _used_device(trace: Trace) -> bool:
    return bool(trace.mask(Kind.WORK, Kind.COLLECTIVE).any()) or trace.manifest.exit not in ("ok", "stopped")


def _check(request: Request, cluster: Cluster) -> None:
    program = request.program
    if not program.module and not Path(program.script).is_file():
        raise InputError(f"there is no script {program.script!r} (working directory {Path.cwd()})")
    package = program.script.split(".")[0]
    if program.module and not importlib.machinery.PathFinder.find_spec(package, [str(Path.cwd()), *sys.path]):
        raise InputError(f"there is no module {package!r} in {Path.cwd()} or installed for {sys.executable}")
    gpu = cluster.gpu
    if (gpu.compute_major, gpu.compute_minor) < OLDEST_CAPABILITY:
        oldest = ".".join(map(str, OLDEST_CAPABILITY))
        raise InputError(
            f"PyTorch's CUDA-13 builds have no code for {gpu.id} (compute capability "
            f"{gpu.compute_major}.{gpu.compute_minor}, oldest is {oldest}): capture for a newer GPU with --save DIR, "
            f"then `presim simulate DIR --gpu {gpu.id}`"
        )
