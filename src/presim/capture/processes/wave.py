"""A wave: ranks that run together, each in its own process."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from presim.capture.launchers.launch import Worker
from presim.capture.processes.blocked import BlockedRanks
from presim.capture.processes.idle_processes import IdleProcesses
from presim.capture.processes.launch_config import LaunchConfig, Simulator, Wave
from presim.capture.processes.rank_outcome import PEERS, CapturedRank, read_outcome, stop_alike
from presim.capture.processes.rank_process import Start
from presim.capture.processes.start import Watch, supervise
from presim.capture.processes.variables import environment
from presim.capture.rendezvous.payload_mail import exchange_variables, write_ranks
from presim.capture.rendezvous.present_ranks import PresentRanks
from presim.capture.rendezvous.store import RendezvousServer
from presim.capture.script.control import Control, ScriptOutcome
from presim.errors import CaptureError
from presim.hardware.device_config import device_config
from presim.system.files.scratch import temporary_folder
from presim.trace import spans
from presim.trace.schema import STOPPED_WITH_ANOTHER

_EXCHANGE = "ranks"  # subdirectory for exchanges between the ranks
_STDOUT, _STDERR = "stdout", "stderr"  # files with a hidden rank's output, in its directory
_OUTPUT_SHOWN = 4000  # characters of a hidden rank's output shown if it fails


@contextlib.contextmanager
def run_wave(
    wave: Wave, setting: LaunchConfig, progress: Callable[[], None] = lambda: None
) -> Iterator[list[CapturedRank]]:
    """Run the ranks to their end; their files stay in a temporary directory while the context lasts.

    Raises:
        CaptureError: the limit has passed, a rank loops on a value that never changes, or uses something unsupported.
    """
    idle = IdleProcesses()
    present_ranks = PresentRanks(wave.ranks, idle)
    with temporary_folder() as directory, RendezvousServer(present_ranks) as store:
        starts = [_start(rank, wave, setting, directory, store.port) for rank in wave.ranks]
        setting.forks.begin(starts)  # before the simulator, whose modules take some time to import
        watch = _Watch(wave, directory, store, idle, progress)
        with contextlib.ExitStack() as files:
            if setting.simulator:
                watch.simulator = files.enter_context(setting.simulator(watch.blocked))
                starts = [_with_simulator(start, watch.simulator, wave) for start in starts]
            hidden = frozenset(wave.ranks) if setting.hides_output else wave.hidden
            starts = [_with_hidden_output(start, files) if start.rank in hidden else start for start in starts]
            starter = setting.forks.starter(starts)
            codes = supervise(starts, watch, limit_s=setting.limit_s, start=starter, optional=wave.samples)
        captured = _collect_outcomes(directory, wave, setting, codes, watch.finished)
        yield [dataclasses.replace(item, deadlock=watch.deadlock) for item in captured]


class _Watch(Watch):
    """Informs the store, the simulator and the detectors of what the wave's processes do."""

    def __init__(
        self, wave: Wave, directory: Path, store: RendezvousServer, idle: IdleProcesses, progress: Callable[[], None]
    ) -> None:
        self.wave, self.directory, self.store, self.idle = wave, directory, store, idle
        self.blocked = BlockedRanks(directory / _EXCHANGE, store.keys.waiting.copy)
        self.simulator: Simulator | None = None
        self.finished: set[int] = set()  # ranks that were not stopped by presim
        self.deadlock = ""  # how ranks waited for each other
        self._progress = progress

    def started(self, processes: Mapping[int, int]) -> None:
        self.idle.watch(list(processes.values()))
        self.blocked.watch(processes)

    def progress(self) -> None:
        self._progress()
        if self.simulator:
            self.simulator.check()

    def ended(self, rank: int, code: int) -> bool:
        self.finished.add(rank)
        self.store.keys.rank_ended(rank)
        return self.wave.is_scout and code == 0 and read_outcome(self.directory / str(rank), code).exit == PEERS

    def is_waiting(self, rank: int) -> bool:
        return self.blocked(rank)

    def release(self, deadlock: str) -> bool:
        self.deadlock = self.deadlock or deadlock
        return self.blocked.release()


def _collect_outcomes(
    directory: Path, wave: Wave, setting: LaunchConfig, codes: Mapping[int, int], finished: Collection[int]
) -> list[CapturedRank]:
    """Collect the outcomes; ranks that are not in ``finished`` were stopped by presim."""
    captured = []
    for rank in wave.ranks:
        rank_directory = directory / str(rank)
        stopped = ScriptOutcome(exit="killed", code=1, error=STOPPED_WITH_ANOTHER)
        has_finished = rank in finished
        outcome = read_outcome(rank_directory, codes[rank], len(wave.ranks)) if has_finished else stopped
        captured.append(CapturedRank(rank, rank_directory, outcome))
    stop_alike(captured)
    if not setting.hides_failures:
        _show_failures(captured, wave)
    for item in captured:
        if item.outcome.exit in ("endless", "unsupported") and item.rank not in wave.samples:
            raise CaptureError(item.outcome.error)
    return captured


def _with_simulator(start: Start, simulator: Simulator, wave: Wave) -> Start:
    represented_ranks = wave.stands_for.get(start.rank, ()) if wave.are_alike else ()
    simulator_variables = simulator.add(start.rank, start.control.parent, represented_ranks)
    return dataclasses.replace(start, variables={**start.variables, **simulator_variables})


def _with_hidden_output(start: Start, files: contextlib.ExitStack) -> Start:
    stdout, stderr = (
        files.enter_context((start.control.parent / name).open("wb")).fileno() for name in (_STDOUT, _STDERR)
    )
    return dataclasses.replace(start, stdout=stdout, stderr=stderr)


def show_output(captured: CapturedRank, setting: LaunchConfig) -> None:
    """Copy a hidden rank's output to where the script's output goes."""
    for name, file in ((_STDOUT, setting.stdout or 1), (_STDERR, 2)):
        path = captured.directory / name
        if path.exists() and not setting.hides_output and file != subprocess.DEVNULL:
            with path.open("rb") as source, open(file, "wb", closefd=False) as target:
                shutil.copyfileobj(source, target)


def _show_failures(captured: Sequence[CapturedRank], wave: Wave) -> None:
    """Print the end of the first failed hidden rank's output, unless a rank with visible output failed."""
    failed = [item for item in captured if item.failed and item.outcome.exit != "killed"]
    if any(not (item.directory / _STDERR).exists() for item in failed):
        return
    for item in [item for item in failed if item.rank not in wave.samples][:1]:
        texts = [(item.directory / name).read_text(errors="replace") for name in (_STDOUT, _STDERR)]
        sys.stderr.write(f"rank {item.rank}:\n{''.join(texts)[-_OUTPUT_SHOWN:]}")


def _start(rank: int, wave: Wave, setting: LaunchConfig, directory: Path, port: int) -> Start:
    rank_directory = directory / str(rank)
    rank_directory.mkdir()
    cluster, program = setting.cluster, setting.program
    worker = Worker(rank, 1 if setting.is_one_process else cluster.world_size, cluster.gpus_per_node, port)
    device = rank_directory / "device"
    device.write_text(device_config(cluster.gpu, cluster.gpus_per_node))
    control = Control(
        script=program.script,
        module=program.module,
        args=program.args_for(worker),
        local_rank=program.local_rank,
        steps=wave.steps,
        hook=str(setting.hook),
        values=setting.values,
        differing_values=wave.differing_values,
        sanitize=setting.sanitize,
        outcome=str(rank_directory / "outcome.json"),
        store=port,
        rank=rank,
        present={number: spans.to_text(list(wave.stands_for.get(number, ()))) for number in wave.ranks},
        is_scout=wave.is_scout,
    )
    path = rank_directory / "control.json"
    path.write_bytes(msgspec.json.encode(control))
    launched = {} if setting.is_one_process else program.variables_for(worker)
    variables = environment(setting.libraries, device, rank_directory, launched)
    variables |= {"PRESIM_ONE_PROCESS": "1"} if setting.is_one_process else {}
    variables |= {"PRESIM_RANK": str(rank), "PRESIM_WORLD_SIZE": str(worker.world_size)}
    if len(wave.ranks) > 1:
        variables |= exchange_variables(_exchange_directory(directory, wave), rank, cluster.world_size)
    return Start(rank, path, variables, program.python, setting.stdout)


def _exchange_directory(directory: Path, wave: Wave) -> Path:
    """The directory in which the processes of a wave exchange payloads."""
    folder = directory / _EXCHANGE
    if not folder.exists():
        folder.mkdir()
        write_ranks(folder, {rank: wave.stands_for.get(rank, ()) for rank in wave.ranks})
    return folder
