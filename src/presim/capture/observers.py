"""Imports torch and everything that observes a script, before the script runs.

What is imported here is the same in every rank's process; what is installed belongs to one (`presim.capture.zygote`).
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
    flex_attention,
    fsdp_shards,
    losses,
    sanitizer,
    vllm_kernels,
    vllm_workers,
)
from presim.capture.adapters.deep_ep import DeepEp
from presim.capture.adapters.symmetric_memory import SymmetricMemory
from presim.capture.adapters.transformer_engine import TransformerEngine
from presim.capture.adapters.triton_kernels import TritonKernels
from presim.capture.device_values.read_backs import ReadBacks
from presim.capture.distributed import objects, process_groups, spawn, world
from presim.capture.distributed.peers import Peers
from presim.capture.distributed.shared_tokens import SharedTokens
from presim.capture.script import current_line
from presim.capture.script.control import Control
from presim.capture.script.cpu_weights import CpuWeights
from presim.capture.script.hook import Hook
from presim.capture.script.misuse import Misuse
from presim.capture.script.modules import ModuleScopes
from presim.capture.script.optimizer_steps import OptimizerSteps
from presim.capture.script.rank_reads import RankReads
from presim.trace import spans
from presim.trace.representatives import Representatives


class Ends(Protocol):
    """How an observer ends the process: `presim.capture.runner.Runner`."""

    def stop(self) -> NoReturn:
        """After the last step that was asked for."""
        ...

    def lack(self, peers: tuple[int, ...]) -> NoReturn:
        """For want of ranks."""
        ...

    def end_loop(self, sentence: str) -> NoReturn:
        """A loop waits for a value that never comes."""
        ...

    def refuse(self, sentence: str) -> NoReturn:
        """The script does what cannot be followed."""
        ...


class AtImport:
    """Those that have to be there before a framework is imported: it takes what they change by names of its own."""

    def __init__(self, hook: Path) -> None:
        self.hook = Hook(hook)
        self.deep_ep = DeepEp(self.hook)
        self.deep_ep.install()
        TransformerEngine(self.hook).install()


def _all_run(control: Control) -> int:
    """How many ranks the world has, where all of them run together; else 0."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    return world_size if len(control.present) == world_size else 0


class Observers:
    """Those that are asked at the end what they saw.

    ``there``: those that were installed already, where frameworks are imported already.
    """

    def __init__(self, control: Control, ends: Ends, there: AtImport | None = None) -> None:
        there = there or AtImport(Path(control.hook))
        hook = there.hook
        self.scopes = ModuleScopes(hook)
        self.steps = OptimizerSteps(self.scopes, control.steps, ends.stop)
        self.cpu_weights = CpuWeights()
        self.symmetric_memory, self.deep_ep = SymmetricMemory(), there.deep_ep
        self.read_backs: ReadBacks | None = None  # where values are computed
        self.rank_reads = RankReads()
        self.misuse = Misuse()
        self.misuse.install(hook)
        self._join_world(control, ends)
        process_groups.install(hook, SharedTokens(control.rank, _all_run(control), hook.route_as))
        spawn.install(ends.refuse)
        self.cpu_weights.install()
        autotuning.install()
        compilation.install(hook)
        flex_attention.install()
        fsdp_shards.install()
        self.symmetric_memory.install()
        vllm_kernels.install()
        vllm_workers.install(ends.refuse)
        self.triton = TritonKernels(hook, values=control.values is not None)
        self.triton.install()
        warnings.filterwarnings("ignore", "Using `torch.compile\\(module\\)` when there are global hooks on modules")
        self.rank_reads.install()
        self.scopes.install()
        self.steps.install()
        deepspeed.install(self.steps.whole_step)
        hook.install()
        hook.ask_call_sites(current_line.calling_line)
        if control.values is not None:
            self.read_backs = ReadBacks(control.values, ends.end_loop)
            self.read_backs.install(hook)
            losses.install(hook)
        torch.cuda._lazy_call(hook.track_memory)
        if control.sanitize:
            sanitizer.install()

    def _join_world(self, control: Control, ends: Ends) -> None:
        stands_for = {rank: spans.from_text(text) for rank, text in control.present.items()}
        representatives = Representatives(list(stands_for), stands_for)
        world.install(control.store, control.rank, representatives)
        self.unheard = objects.install(control.rank, representatives, Path(control.outcome).parent)
        if any(control.present.values()):  # there are absent ranks
            checkpoints.install()
        if control.is_scout:
            Peers(control.rank, stands_for, ends.lack).install()

    def notes(self) -> tuple[str, ...]:
        """Sentences about what the script used."""
        return (
            *self.triton.work.guesses,
            *self.symmetric_memory.notes(),
            *self.deep_ep.notes(),
            *objects.notes(self.unheard),
        )

    def facts(self) -> dict[str, int]:
        """What the launcher wants to know of the script's model and input."""
        return {
            "tokens": self.scopes.batch.tokens,
            "samples": self.scopes.batch.samples,
            "steps_with_input": self.scopes.batch.steps_with_input,
            "parameters": self.scopes.batch.parameters,
            "parameters_local": self.scopes.batch.parameters_local,
            "unfilled_bytes": self.cpu_weights.bytes,
        }
