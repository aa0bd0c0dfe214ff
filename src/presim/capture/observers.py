"""Import torch and install everything that observes a script, before the script runs.

The imports are the same in every rank's process; the installed observers belong to one (`presim.capture.zygote`).
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import NoReturn, Protocol

import torch

from presim.capture.adapters import (
    autotuning,
    checkpoints,
    compilation,
    deepspeed,
    deepspeed_adam,
    dtensor_flags,
    dtensor_lists,
    dtensor_outputs,
    flex_attention,
    fsdp_shards,
    large_files,
    losses,
    remote_calls,
    sanitizer,
    shared_compilation,
    vllm_kernels,
    vllm_workers,
)
from presim.capture.adapters.deep_ep import DeepEp
from presim.capture.adapters.flat_buffers import FlatBuffers
from presim.capture.adapters.lbfgs import LineSearches
from presim.capture.adapters.symmetric_memory import SymmetricMemory
from presim.capture.adapters.transformer_engine import TransformerEngine
from presim.capture.adapters.triton_kernels import TritonKernels
from presim.capture.device_values.read_backs import ReadBacks
from presim.capture.distributed import objects, process_groups, spawn, world
from presim.capture.distributed.peers import Peers
from presim.capture.distributed.shared_tokens import SharedTokens
from presim.capture.script import current_line
from presim.capture.script.clock_reads import ClockReads
from presim.capture.script.control import Control
from presim.capture.script.cpu_weights import CpuWeights
from presim.capture.script.data_loading import DataLoading
from presim.capture.script.hook import Hook
from presim.capture.script.misuse import Misuse
from presim.capture.script.module_hooks import ModuleScopes
from presim.capture.script.optimizer_steps import OptimizerSteps
from presim.capture.script.rank_reads import RankReads
from presim.capture.script.thread_waits import ThreadWaits
from presim.capture.steps.observer import StepObserver
from presim.trace import spans
from presim.trace.representatives import Representatives


class ProcessExits(Protocol):
    """The ways in which an observer can end the process, implemented by `presim.capture.runner.Runner`."""

    def stop(self) -> NoReturn:
        """End after the last requested step."""
        ...

    def stop_for_peers(self, peers: tuple[int, ...]) -> NoReturn:
        """End because these ranks, with which this one exchanges messages, do not run."""
        ...

    def end_loop(self, sentence: str) -> NoReturn:
        """End because a loop waits for a value that never changes."""
        ...

    def refuse(self, sentence: str) -> NoReturn:
        """End because the script uses something unsupported."""
        ...


class ImportObservers:
    """Observers that must be installed before a framework is imported, because it copies the names they replace."""

    def __init__(self, hook: Path) -> None:
        self.hook = Hook(hook)
        self.deep_ep = DeepEp(self.hook)
        self.deep_ep.install()
        TransformerEngine(self.hook).install()


def _all_run(control: Control) -> int:
    """The world size if all of its ranks run together, else 0."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    return world_size if len(control.present) == world_size else 0


class Observers:
    """Everything that observes the script, and what it recorded.

    ``installed``: observers that were installed before frameworks were imported.
    """

    def __init__(self, control: Control, exits: ProcessExits, installed: ImportObservers | None = None) -> None:
        installed = installed or ImportObservers(Path(control.hook))
        hook = installed.hook
        directory, decides = Path(control.outcome).parent, control.rank == min(control.present, default=control.rank)
        self.step_observer = StepObserver(hook, directory, control.steps, decides, exits.stop)
        self.scopes = ModuleScopes(hook, self.step_observer)
        self.flat_buffers = FlatBuffers(hook)
        self.steps = OptimizerSteps(self.scopes, self.step_observer, self.flat_buffers.named)
        self.cpu_weights = CpuWeights()
        self.symmetric_memory, self.deep_ep = SymmetricMemory(), installed.deep_ep
        self.read_backs: ReadBacks | None = None  # only if values are computed
        self.rank_reads = RankReads(control.script, control.local_rank, hook.add_own_time)
        self.clock_reads = ClockReads(control.script, hook.add_own_time)
        self.thread_waits = ThreadWaits(hook.add_own_time)
        self.line_searches = LineSearches(hook, self.scopes)
        self.misuse = Misuse()
        self.misuse.install(hook)
        self._join_world(control, exits)
        shared_tokens = SharedTokens(control.rank, _all_run(control), hook.route_as, by_rank=control.differing_values)
        process_groups.install(hook, shared_tokens)
        spawn.install(exits.refuse)
        self.cpu_weights.install()
        autotuning.install()
        compilation.install(hook)
        shared_compilation.install()
        flex_attention.install(control.values)
        fsdp_shards.install()
        dtensor_flags.install()
        dtensor_lists.install()
        dtensor_outputs.install()
        large_files.install()
        remote_calls.install()
        self.symmetric_memory.install()
        vllm_kernels.install()
        vllm_workers.install(exits.refuse)
        self.triton = TritonKernels(hook, values=control.values is not None)
        self.triton.install()
        warnings.filterwarnings("ignore", "Using `torch.compile\\(module\\)` when there are global hooks on modules")
        self.rank_reads.install()
        self.clock_reads.install()
        self.thread_waits.install()
        self.scopes.install()
        self.steps.install()
        self.step_observer.install()
        DataLoading(hook, directory).install()
        deepspeed.install(self.steps.whole_step, self.step_observer.expect_update)
        deepspeed_adam.install()
        self.flat_buffers.install()
        hook.install()
        hook.set_call_site_callback(current_line.calling_line)
        if control.values is not None:
            lowest_rank = min(control.present) if control.differing_values else None
            self.read_backs = ReadBacks(control.values, exits.end_loop, lowest_rank)
            self.read_backs.install(hook)
            losses.install(hook)
            self.line_searches.install()
        torch.cuda._lazy_call(hook.track_memory)
        if control.sanitize:
            sanitizer.install()

    def _join_world(self, control: Control, exits: ProcessExits) -> None:
        stands_for = {rank: spans.from_text(text) for rank, text in control.present.items()}
        representatives = Representatives(list(stands_for), stands_for)
        world.install(control.store, control.rank, representatives)
        self.unknown_objects = objects.install(control.rank, representatives, Path(control.outcome).parent)
        if any(control.present.values()):  # some ranks are absent
            checkpoints.install()
        if control.is_scout:
            Peers(control.rank, stands_for, exits.stop_for_peers).install()

    def notes(self) -> tuple[str, ...]:
        """Sentences about what the script used, for the result."""
        return (
            *self.triton.work.guesses,
            *flex_attention.notes(),
            *self.symmetric_memory.notes(),
            *self.deep_ep.notes(),
            *self.line_searches.notes(),
            *objects.notes(self.unknown_objects),
            *self.clock_reads.notes(),
            *self.thread_waits.notes(self.step_observer.step_end_ns()),
        )

    def facts(self) -> dict[str, int]:
        """Counts of the script's model and input, for the manifest."""
        return {
            "parameters": self.scopes.batch.parameters,
            "parameters_local": self.scopes.batch.parameters_local,
            "unfilled_bytes": self.cpu_weights.bytes,
        }
