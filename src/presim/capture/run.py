"""Capture one rank of a script: the whole of it, from a request to a Trace."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from presim.capture.assemble import assemble
from presim.capture.control import Control, Outcome
from presim.capture.environment import require_shim, require_torch
from presim.capture.hook_build import ensure_hook, hook_path
from presim.capture.launch import environment, supervise
from presim.capture.launchers.launch import Launch, Place
from presim.capture.log import read_log
from presim.capture.rendezvous import RendezvousServer
from presim.capture.values import OFF, parse
from presim.errors import CaptureError, InputError
from presim.hardware.cluster import Cluster
from presim.hardware.device_config import device_config
from presim.trace.schema import Kind, Manifest, Trace

_NO_SPACE = 1 << 20  # bytes: with less on the disk, the end of a script cannot be written


OLDEST_CAPABILITY = (7, 5)  # that PyTorch's builds for CUDA 13 hold code for


@dataclasses.dataclass(frozen=True)
class Request:
    """What to capture."""

    program: Launch
    rank: int = 0
    steps: int = 3  # stop after so many optimizer steps; 0: run to the end
    limit_s: float = 600.0  # end a script that takes longer
    script_stdout: int | None = None  # file descriptor for what the script prints; None: ours
    values: tuple[str, ...] = ()  # policies, as --values takes them


class Simulator(Protocol):
    """Answers the emulated device while the script runs: `presim.live.server.LiveServer`."""

    def add(self, rank: int, directory: Path) -> dict[str, str]:
        """Listen in a rank's log directory; variables for its environment. All ranks are added before one starts."""
        ...

    def check(self) -> None:
        """Raise what went wrong."""
        ...


def capture(
    request: Request,
    cluster: Cluster,
    progress: Callable[[str], None] = lambda text: None,
    simulator: Simulator | None = None,
) -> Trace:
    """Run the script on the emulated cluster and return what its rank asked for.

    Without a ``simulator`` the script sees this machine's clock, and durations between events are none of the device's.
    A script that raises or runs out of memory gives a trace too: `Manifest.exit` says how it ended.

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
    progress("running the script")
    with tempfile.TemporaryDirectory(prefix="presim-") as name, RendezvousServer(alone=True) as store:
        directory = Path(name)
        device = directory / "device"
        device.write_text(device_config(cluster.gpu, cluster.gpus_per_node))
        place = Place(request.rank, cluster.world_size, cluster.gpus_per_node, store.port)
        control = _write_control(request, directory, hook, place, values)
        variables = environment(
            libraries,
            device,
            directory,
            request.program.variables_at(place),
        )
        if simulator:
            variables |= simulator.add(request.rank, directory)

        def watch() -> None:
            progress("running the script")
            if simulator:
                simulator.check()

        code = supervise(
            control,
            variables,
            limit_s=request.limit_s,
            python=request.program.python,
            script_stdout=request.script_stdout,
            progress=watch,
        )
        progress("reading what it asked for")
        return _trace(request, cluster, directory, code)


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
    if not 0 <= request.rank < cluster.world_size:
        raise InputError(
            f"rank {request.rank} is not in a world of {cluster.world_size}: give --rank 0 to {cluster.world_size - 1}"
        )


def _write_control(request: Request, directory: Path, hook: Path, place: Place, values: dict[str, str] | None) -> Path:
    control = Control(
        script=request.program.script,
        module=request.program.module,
        args=request.program.args_at(place),
        steps=request.steps,
        hook=str(hook),
        values=values,
        outcome=str(directory / "outcome.json"),
        store=place.port,
    )
    path = directory / "control.json"
    path.write_bytes(msgspec.json.encode(control))
    return path


def _trace(request: Request, cluster: Cluster, directory: Path, code: int) -> Trace:
    ended = (directory / "outcome.json").exists()
    outcome = _read_outcome(directory / "outcome.json", code)
    if outcome.exit == "endless":
        raise CaptureError(outcome.error)
    log = read_log(directory)
    if log.disk_full or (not ended and shutil.disk_usage(directory).free < _NO_SPACE):
        raise CaptureError(f"the disk that holds {directory.parent} filled up; free some space or set TMPDIR")
    trace = assemble(log, _manifest(request, cluster, outcome))
    if not trace.mask(Kind.WORK, Kind.COLLECTIVE).any() and outcome.exit in ("ok", "stopped"):
        raise CaptureError(
            f"{request.program.script} ended without asking anything of the GPU: does it move its model to 'cuda', "
            "in this process and not in one that it starts?"
        )
    return trace


def _read_outcome(path: Path, code: int) -> Outcome:
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Outcome)
    if code < 0:
        name = signal.Signals(-code).name
        return Outcome(exit="killed", code=code, error=f"the script's process ended with {name}")
    return Outcome(exit="exited" if code else "ok", code=code, error=f"the script exited with {code}" if code else "")


def _manifest(request: Request, cluster: Cluster, outcome: Outcome) -> Manifest:
    facts = outcome.facts
    steps = max(1, facts.get("steps_with_input", 0) or outcome.steps)
    batch = {key: facts[key] // steps for key in ("tokens", "samples") if facts.get(key)}
    model = {key: facts[key] for key in ("parameters", "parameters_local") if facts.get(key)}
    program = request.program
    return Manifest(
        world_size=cluster.world_size,
        rank=request.rank,
        gpu=cluster.gpu.id,
        gpus_per_node=cluster.gpus_per_node,
        script=" ".join(["-m"] * program.module + [program.script, *program.args]),
        versions=outcome.versions,
        exit=outcome.exit,
        error=outcome.error,
        memory_capacity_bytes=cluster.gpu.memory_bytes - cluster.gpu.context_bytes,
        device_total_bytes=cluster.gpu.memory_bytes,
        context_bytes=cluster.gpu.context_bytes,
        batch=batch,
        model=model,
        nccl=outcome.nccl,
        host_probe_ns=outcome.host_probe_ns,
        read_backs=outcome.read_backs,
        policies=parse(request.values) or {"values": OFF},
        allocator=outcome.allocator,
        notes=program.notes,
    )
