"""The outcome of a rank's process: how it ended, and its trace."""

from __future__ import annotations

import dataclasses
import resource
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

from presim.capture.device_values.policies import OFF
from presim.capture.processes.launch_config import LaunchConfig
from presim.capture.reading.assemble import assemble
from presim.capture.reading.fetches import with_fetch_times
from presim.capture.reading.log import parse, read_log
from presim.capture.reading.step_entries import with_entries
from presim.capture.reading.step_records import read_steps, with_steps
from presim.capture.script.control import ScriptOutcome
from presim.errors import CaptureError
from presim.trace.schema import ClusterTables, Manifest, StepFacts, Trace
from presim.units import gib

_SIGKILL = ", which the kernel sends when this machine runs out of memory"
_HOST_LIMIT = "host-limit "  # start of the note (shim/core/memory.cpp)
_MIN_FREE_BYTES = 1 << 20  # bytes: with less free space, the outcome of a script may not have been written
PEERS = "peers"  # outcome of a scout that exchanges messages with ranks that do not run


@dataclasses.dataclass(frozen=True)
class CapturedRank:
    """One rank's process after its end."""

    rank: int
    directory: Path
    outcome: ScriptOutcome
    deadlock: str = ""  # how the ranks of the wave waited for each other, if they did

    @property
    def failed(self) -> bool:
        """Whether the script ended abnormally."""
        return self.outcome.exit not in ("ok", "stopped", PEERS)


def read_outcome(directory: Path, code: int, ranks: int = 1) -> ScriptOutcome:
    """How a rank's process ended, from its outcome file or else its exit code; ``ranks``: how many ran at once."""
    path = directory / "outcome.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=ScriptOutcome)
    if code < 0:
        name = signal.Signals(-code).name
        fewer = f"; {ranks} ranks ran at once, --check 0 runs one for all" if ranks > 1 else ""
        cause = f"{_SIGKILL}{fewer}" if -code == signal.SIGKILL else ""
        return ScriptOutcome(exit="killed", code=code, error=f"the script's process ended with {name}{cause}")
    return ScriptOutcome(
        exit="exited" if code else "ok", code=code, error=f"the script exited with {code}" if code else ""
    )


def stop_alike(captured: Sequence[CapturedRank]) -> None:
    """Let ranks that ran ahead end where the lowest one, which decides for all, was stopped.

    They may have reached a bound of their own or the end of the script before the decision was published.
    """
    deciding = min(captured, key=lambda rank: rank.rank).outcome
    if deciding.exit != "stopped" or deciding.end is None or not deciding.end.steps:
        return
    for outcome in (rank.outcome for rank in captured):
        has_run_ahead = outcome.end is None or not 0 < outcome.end.steps <= deciding.end.steps
        if outcome.exit in ("ok", "stopped") and has_run_ahead:
            outcome.exit, outcome.end = "stopped", deciding.end


def read_trace(captured: CapturedRank, setting: LaunchConfig) -> Trace:
    """Read a rank's log into a trace.

    Raises:
        CaptureError: the disk was full, or this machine lacked memory.
    """
    directory = captured.directory
    log = read_log(directory)
    if captured.failed and (limit := host_limit(log.notes)):
        raise CaptureError(limit)
    ended = (directory / "outcome.json").exists()
    if log.disk_full or (not ended and shutil.disk_usage(directory).free < _MIN_FREE_BYTES):
        raise CaptureError(f"the disk that holds {directory.parent.parent} filled up; free some space or set TMPDIR")
    steps = read_steps(directory, log.records, captured.outcome.end, has_ended=captured.outcome.exit == "ok")
    completed = with_fetch_times(with_steps(log, steps, cut=captured.outcome.exit == "stopped"), directory)
    return with_entries(assemble(completed, _manifest(captured, setting, steps.facts)), log)


def host_limit(notes: Sequence[str]) -> str | None:
    """The error if this machine, not the GPU, had too little memory for the script; else None."""
    sizes = [parse(note).number("bytes") for note in notes if note.startswith(_HOST_LIMIT)]
    if not sizes:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    cause = f"ulimit -v allows {gib(limit)}" if limit != resource.RLIM_INFINITY else "its memory is exhausted"
    return (
        f"this machine, not the GPU, ran out of memory: {gib(sizes[0])} of addresses for the emulated device could not "
        f"be reserved ({cause}); the emulation reserves as many as the program allocates: raise the limit"
    )


def _unfilled(size: int) -> list[str]:
    return [f"Random numbers for {gib(size)} of weights on the CPU were not drawn: they hold zeros."] if size else []


def _beyond_gpus(error: str, gpus: int) -> list[str]:
    """A note if the script failed because it used a GPU that its node does not have."""
    if "invalid device ordinal" not in error:
        return []
    plural = "s" if gpus > 1 else ""
    return [f"The script uses a GPU beyond the {gpus} GPU{plural} of its node: --gpus-per-node N gives it N of them."]


def _typical_input(inputs: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Tokens and samples of a usual step: of the median one. The first may also infer shapes."""
    later = sorted((counts for counts in inputs[1:] if any(counts)), key=sum) or sorted(inputs[:1])
    tokens, samples = later[len(later) // 2] if later else (0, 0)
    return {key: count for key, count in (("tokens", tokens), ("samples", samples)) if count}


def _manifest(captured: CapturedRank, setting: LaunchConfig, step: StepFacts) -> Manifest:
    outcome, cluster, program = captured.outcome, setting.cluster, setting.program
    facts = outcome.facts
    model = {key: facts[key] for key in ("parameters", "parameters_local") if facts.get(key)}
    return Manifest(
        world_size=cluster.world_size,
        rank=captured.rank,
        gpu=cluster.gpu.id,
        node=cluster.node.id,
        fabric=cluster.fabric.id,
        cluster_tables=ClusterTables(
            cluster.nccl, cluster.collectives, cluster.network, msgspec.to_builtins(cluster.groups)
        ),
        gpus_per_node=cluster.gpus_per_node,
        script=" ".join(["-m"] * program.module + [program.script, *program.args]),
        versions=outcome.versions,
        exit=outcome.exit,
        error=outcome.error,
        deadlock=captured.deadlock,
        memory_capacity_bytes=cluster.gpu.memory_bytes - cluster.gpu.context_bytes,
        device_total_bytes=cluster.gpu.memory_bytes,
        context_bytes=cluster.gpu.context_bytes,
        has_process_group=outcome.has_process_group,
        devices=cluster.world_size if setting.is_one_process else 1,
        batch=_typical_input(step.inputs),
        step=msgspec.structs.replace(step, sample=outcome.sample),
        model=model,
        nccl=outcome.nccl,
        reference_host=True,
        neighbours=outcome.neighbours,
        read_backs=outcome.read_backs,
        misuse=outcome.misuse,
        policies=setting.values or {"values": OFF},
        allocator=outcome.allocator,
        notes=(
            *program.notes,
            *outcome.notes,
            *_unfilled(facts.get("unfilled_bytes", 0)),
            *_beyond_gpus(outcome.error, cluster.gpus_per_node),
        ),
    )
