"""Cases with their own program: the columns ``command`` (a launch command) and ``job`` (a saved job)."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import shlex
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from presim.engine.simulation_options import Options
from presim.errors import InputError, PresimError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.options import RunOptions
from presim.hardware.cluster import Cluster
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.gpus import gpu_of
from presim.studies.validation.runs import Settings, UnknownCaseError, ValidationRun
from presim.trace import job_store
from presim.trace.job import Job
from presim.trace.schema import Trace
from presim.verbs import run as running
from presim.verbs import target as targets


@dataclasses.dataclass(frozen=True)
class ProgramRun:
    """A command to capture, or a saved job."""

    cluster: Cluster
    options: RunOptions
    command: tuple[str, ...] = ()
    saved: Path | None = None  # saved job; None: the command is captured
    captures: Path | None = None  # folder that stores captures of commands

    @property
    def what(self) -> str:
        """Name of the program in messages: "command" or "saved job"."""
        return "command" if self.command else "saved job"

    def on(self, cluster: Cluster) -> ProgramRun:
        """The same program on another cluster. A saved job is not captured again."""
        return dataclasses.replace(self, cluster=cluster) if self.command else self

    @functools.cached_property
    def job(self) -> Job:
        """The job: read if it is stored, else captured."""
        folder = self.saved or self._capture_folder()
        if folder and (self.saved or (folder / job_store.JOB_FILE).exists()):
            return Job.load(folder)
        job = running.capture_command(self.command, self.cluster, self.options, stdout=subprocess.DEVNULL)
        if folder:
            job.save(folder)
        return job

    def _capture_folder(self) -> Path | None:
        """Folder of the stored capture, by command and cluster. Changes of the program are not detected."""
        if self.captures is None:
            return None
        gpu = self.cluster.gpu
        parts = (
            *self.command,
            f"{gpu.id} {gpu.memory_bytes} {self.cluster.nodes} {self.cluster.gpus_per_node}",
            f"{self.options.ranks} {self.options.steps} {' '.join(self.options.values)}",
            str(Path.cwd()),
        )
        return self.captures / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    def traces(self) -> Sequence[Trace]:
        """The traces of the captured ranks."""
        return self.job.traces

    def stands_for(self) -> Mapping[int, Sequence[int]]:
        """Captured rank -> the other ranks that it represents."""
        return self.job.stands_for

    def evaluate(self, traces: Sequence[Trace], options: Options | None) -> Evaluation:
        """Price and simulate the traces, like ``presim run`` and ``presim simulate``."""
        return evaluate(dataclasses.replace(self.job, traces=traces), self.cluster, options)

    def step_s(self, traces: Sequence[Trace], evaluation: Evaluation) -> float | None:
        """Seconds of the run's steady step."""
        return evaluation.result.step_time_s


@dataclasses.dataclass(frozen=True)
class Commands:
    """presim's own provider: cases with a command or a saved job."""

    settings: Settings
    sources_of_tests: Collection[str] = ()

    def prepare(self, case: Case) -> ValidationRun:
        """The run of a case.

        Raises:
            UnknownCaseError: it names neither a command nor a saved job.
            CannotBuildError: it names both, or its cluster is unknown.
        """
        command, saved = case.text("command"), case.text("job")
        if command and saved:
            raise CannotBuildError("the case names both a command and a saved job; leave one cell empty")
        if not command and not saved:
            raise UnknownCaseError("the case names neither a command nor a saved job")
        options = _options(case, saved=bool(saved))
        try:
            if saved:
                return ProgramRun(targets.cluster_of_saved(saved, options), options, saved=Path(saved))
            words = tuple(shlex.split(command))
            return ProgramRun(
                running.cluster_of_command(words, options), options, words, captures=self.settings.captures
            )
        except ValueError as error:
            raise CannotBuildError(f"command = {command!r} cannot be read: {error}") from None
        except InputError as error:
            raise CannotBuildError(str(error)) from None

    def close(self) -> None:
        """Do nothing: the provider holds no resources."""


def _options(case: Case, *, saved: bool) -> RunOptions:
    """The options of the cluster and of the capture in a row."""
    gpu, cluster = case.value("gpu"), case.value("cluster") or None
    try:
        return RunOptions(
            gpu=None if not gpu and (saved or cluster) else gpu if gpu.endswith(".toml") else gpu_of(case),
            node=case.value("node") or None,
            fabric=case.value("fabric") or None,
            cluster=cluster,
            nodes=case.count("nodes", 0) or None,
            gpus_per_node=case.count("gpus_per_node", 0) or None,
            world_size=case.count("n_gpus", 0) or None,
            ranks=case.value("ranks") or "auto",
            steps=case.count("steps", 3),
            values=tuple(case.value("values").split()),
        )
    except CannotBuildError:
        raise
    except PresimError as error:
        raise CannotBuildError(str(error)) from None
