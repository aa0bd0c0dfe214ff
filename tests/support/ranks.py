"""Run a script as several ranks that are all there, and read their traces."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from presim.capture.assemble import assemble
from presim.capture.control import Control, Outcome
from presim.capture.environment import require_shim, require_torch
from presim.capture.hook_build import ensure_hook
from presim.capture.launch import environment
from presim.capture.launchers.launch import Launch, Place
from presim.capture.log import read_log
from presim.capture.rendezvous import RendezvousServer
from presim.capture.together import together, write_ranks
from presim.capture.values import parse
from presim.hardware.choose import choose_cluster
from presim.hardware.device_config import device_config
from presim.trace.schema import Manifest, Trace


def capture_ranks(
    script: Path, args: Sequence[str], world_size: int, *, gpu: str = "h100-sxm", steps: int = 2, limit_s: float = 300
) -> list[Trace]:
    """The traces of all ranks of a world on one node."""
    cluster = choose_cluster(gpu=gpu, world_size=world_size)
    libraries, hook = require_shim(), ensure_hook(require_torch())
    program = Launch(str(script), tuple(args))
    with tempfile.TemporaryDirectory(prefix="presim-") as name, RendezvousServer(alone=False) as store:
        shared = Path(name)
        (shared / "device").write_text(device_config(cluster.gpu, cluster.gpus_per_node))
        write_ranks(shared, dict.fromkeys(range(world_size), ()))
        processes = []
        for rank in range(world_size):
            directory = shared / f"log{rank}"
            directory.mkdir()
            place = Place(rank, world_size, cluster.gpus_per_node, store.port)
            control = Control(
                script=str(script),
                module=False,
                args=program.args_at(place),
                steps=steps,
                hook=str(hook),
                outcome=str(directory / "outcome.json"),
                store=store.port,
                values=parse(()),
            )
            (directory / "control.json").write_bytes(msgspec.json.encode(control))
            variables = environment(libraries, shared / "device", directory, program.variables_at(place))
            command = [sys.executable, "-m", "presim.capture.runner", str(directory / "control.json")]
            processes.append(subprocess.Popen(command, env=variables | together(shared, rank, world_size)))
        try:
            for process in processes:
                process.wait(limit_s)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [_trace(shared / f"log{rank}", rank, world_size) for rank in range(world_size)]


def _trace(directory: Path, rank: int, world_size: int) -> Trace:
    outcome = msgspec.json.decode((directory / "outcome.json").read_bytes(), type=Outcome)
    manifest = Manifest(
        world_size=world_size,
        rank=rank,
        gpu="h100-sxm",
        gpus_per_node=8,
        script="",
        exit=outcome.exit,
        error=outcome.error,
        allocator=outcome.allocator,
    )
    return assemble(read_log(directory), manifest)
