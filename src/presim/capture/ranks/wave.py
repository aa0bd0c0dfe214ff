"""A wave: ranks that run together, each in a process of its own, and what they leave behind."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from presim.capture.device_values.policies import OFF
from presim.capture.launchers.launch import Launch, Place
from presim.capture.ranks.presence import Presence
from presim.capture.ranks.processes import Start, supervise
from presim.capture.ranks.quiet import Quiet
from presim.capture.ranks.rendezvous import RendezvousServer
from presim.capture.ranks.together import together, write_ranks
from presim.capture.ranks.variables import environment
from presim.capture.reading.assemble import assemble
from presim.capture.reading.log import read_log
from presim.capture.script.control import Control, Outcome
from presim.errors import CaptureError
from presim.hardware.cluster import Cluster
from presim.hardware.device_config import device_config
from presim.trace import spans
from presim.trace.schema import Manifest, Trace
from presim.units import gib

_NO_SPACE = 1 << 20  # bytes: with less on the disk, the end of a script cannot be written
_OUTPUT_SHOWN = 4000  # characters of a hidden rank's output, where it fails
STOPPED = "stopped, because another rank failed"  # `Manifest.error` of such ranks
PEERS = "peers"  # how a scout ends that met ranks it cannot do without


class Simulator(Protocol):
    """Answers the emulated device while scripts run: `presim.live.server.LiveServer`."""

    def add(self, rank: int, directory: Path) -> dict[str, str]:
        """Listen in a rank's log directory; variables for its environment. All ranks are added before one starts."""
        ...

    def check(self) -> None:
        """Raise what went wrong."""
        ...


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all waves of a job have in common."""

    program: Launch
    cluster: Cluster
    libraries: list[Path]
    hook: Path
    limit_s: float
    stdout: int | None = None  # file descriptor for what the script prints; None: ours
    values: dict[str, str] | None = None  # policies, as `presim.capture.device_values.policies.parse` checked them
    simulator: Callable[[], contextlib.AbstractContextManager[Simulator]] | None = None  # one for each wave


@dataclasses.dataclass(frozen=True)
class Wave:
    """Ranks to run together."""

    ranks: tuple[int, ...]
    steps: int  # stop after so many optimizer steps; 0: run to the end
    brief: frozenset[int] = frozenset()  # ranks that stop after one step; nobody minds if they fail
    hidden: frozenset[int] = frozenset()  # ranks whose output is kept back, unless they fail
    stands_for: Mapping[int, Sequence[int]] = dataclasses.field(default_factory=dict)  # rank -> others, ascending
    is_scout: bool = False  # it ends where it meets ranks that it cannot do without


@dataclasses.dataclass(frozen=True)
class Captured:
    """One rank's process after its end."""

    rank: int
    directory: Path
    outcome: Outcome

    @property
    def failed(self) -> bool:
        """Whether the script ended in a way that it should not."""
        return self.outcome.exit not in ("ok", "stopped", PEERS)


@contextlib.contextmanager
def run_wave(wave: Wave, setting: Setting, progress: Callable[[], None] = lambda: None) -> Iterator[list[Captured]]:
    """Run the ranks to their end; what they left lies in a temporary directory for as long as the context lasts.

    Raises:
        CaptureError: the limit has passed, a rank loops on a value that never changes, or does what is not supported.
    """
    quiet = Quiet()
    presence = Presence(wave.ranks, quiet)
    with tempfile.TemporaryDirectory(prefix="presim-") as name, RendezvousServer(presence) as store:
        directory = Path(name)
        starts = [_start(rank, wave, setting, directory, store.port) for rank in wave.ranks]

        alone: set[int] = set()  # ranks that ended by themselves

        def ended(rank: int, code: int) -> bool:
            alone.add(rank)
            store.keys.left(rank)
            return wave.is_scout and code == 0 and read_outcome(directory / str(rank), code).exit == PEERS

        with contextlib.ExitStack() as files:
            simulator = files.enter_context(setting.simulator()) if setting.simulator else None
            if simulator:
                starts = [_timed(start, simulator) for start in starts]
            starts = [_hidden(start, files) if start.rank in wave.hidden else start for start in starts]
            codes = supervise(
                starts,
                limit_s=setting.limit_s,
                optional=wave.brief,
                progress=lambda: _watch(progress, simulator),
                ended=ended,
                started=quiet.watch,
            )
        outcomes = {rank: read_outcome(directory / str(rank), codes[rank]) for rank in wave.ranks}
        for rank in set(wave.ranks) - alone:
            outcomes[rank] = Outcome(exit="killed", code=1, error=STOPPED)
        captured = [Captured(rank, directory / str(rank), outcomes[rank]) for rank in wave.ranks]
        _show_failures(captured, wave)
        for item in captured:
            if item.outcome.exit in ("endless", "unsupported") and item.rank not in wave.brief:
                raise CaptureError(item.outcome.error)
        yield captured


def _timed(start: Start, simulator: Simulator) -> Start:
    more = simulator.add(start.rank, start.control.parent)
    return dataclasses.replace(start, variables={**start.variables, **more})


def _watch(progress: Callable[[], None], simulator: Simulator | None) -> None:
    progress()
    if simulator:
        simulator.check()


def _hidden(start: Start, files: contextlib.ExitStack) -> Start:
    output = files.enter_context((start.control.parent / "output").open("wb")).fileno()
    return dataclasses.replace(start, stdout=output, stderr=output)


def _show_failures(captured: Sequence[Captured], wave: Wave) -> None:
    """The end of what hidden ranks printed that failed by themselves."""
    for item in captured:
        path = item.directory / "output"
        if item.failed and item.outcome.exit != "killed" and path.exists() and item.rank not in wave.brief:
            text = path.read_text(errors="replace")
            sys.stderr.write(f"rank {item.rank}:\n{text[-_OUTPUT_SHOWN:]}")


def _start(rank: int, wave: Wave, setting: Setting, directory: Path, port: int) -> Start:
    own = directory / str(rank)
    own.mkdir()
    cluster, program = setting.cluster, setting.program
    place = Place(rank, cluster.world_size, cluster.gpus_per_node, port)
    device = own / "device"
    device.write_text(device_config(cluster.gpu, cluster.gpus_per_node))
    control = Control(
        script=program.script,
        module=program.module,
        args=program.args_at(place),
        steps=1 if rank in wave.brief else wave.steps,
        hook=str(setting.hook),
        values=setting.values,
        outcome=str(own / "outcome.json"),
        store=port,
        rank=rank,
        present={number: spans.to_text(list(wave.stands_for.get(number, ()))) for number in wave.ranks},
        is_scout=wave.is_scout,
    )
    path = own / "control.json"
    path.write_bytes(msgspec.json.encode(control))
    variables = environment(setting.libraries, device, own, program.variables_at(place))
    variables |= {"PRESIM_RANK": str(rank), "PRESIM_WORLD_SIZE": str(cluster.world_size)}
    if len(wave.ranks) > 1:
        variables |= together(_meeting(directory, wave), rank, cluster.world_size)
    return Start(rank, path, variables, program.python, setting.stdout)


def _meeting(directory: Path, wave: Wave) -> Path:
    """Where the processes of a wave exchange what their devices send each other."""
    folder = directory / "ranks"
    if not folder.exists():
        folder.mkdir()
        write_ranks(folder, {rank: wave.stands_for.get(rank, ()) for rank in wave.ranks})
    return folder


def read_outcome(directory: Path, code: int) -> Outcome:
    """How a rank's process ended, by its own account or by its exit code."""
    path = directory / "outcome.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Outcome)
    if code < 0:
        name = signal.Signals(-code).name
        return Outcome(exit="killed", code=code, error=f"the script's process ended with {name}")
    return Outcome(exit="exited" if code else "ok", code=code, error=f"the script exited with {code}" if code else "")


def read_trace(captured: Captured, setting: Setting) -> Trace:
    """What a rank asked of its device.

    Raises:
        CaptureError: the disk was full.
    """
    directory = captured.directory
    log = read_log(directory)
    ended = (directory / "outcome.json").exists()
    if log.disk_full or (not ended and shutil.disk_usage(directory).free < _NO_SPACE):
        raise CaptureError(f"the disk that holds {directory.parent.parent} filled up; free some space or set TMPDIR")
    return assemble(log, _manifest(captured, setting))


def _unfilled(size: int) -> list[str]:
    return [f"Random numbers for {gib(size)} of weights on the CPU were not drawn: they hold zeros."] if size else []


def _manifest(captured: Captured, setting: Setting) -> Manifest:
    outcome, cluster, program = captured.outcome, setting.cluster, setting.program
    facts = outcome.facts
    steps = max(1, facts.get("steps_with_input", 0) or outcome.steps)
    batch = {key: facts[key] // steps for key in ("tokens", "samples") if facts.get(key)}
    model = {key: facts[key] for key in ("parameters", "parameters_local") if facts.get(key)}
    return Manifest(
        world_size=cluster.world_size,
        rank=captured.rank,
        gpu=cluster.gpu.id,
        node=cluster.node.id,
        fabric=cluster.fabric.id,
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
        policies=setting.values or {"values": OFF},
        allocator=outcome.allocator,
        notes=(*program.notes, *outcome.notes, *_unfilled(facts.get("unfilled_bytes", 0))),
    )
