"""Steps of vLLM's own model runner: captured once, saved, and priced and simulated as any capture.

A saved set is a folder: the job as ``--save`` writes it, ``asked.json`` with the batches, and ``steps.json`` with the
content of each step.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import platformdirs

from presim.errors import CaptureError, InputError
from presim.serving.steps import batches as step_batches
from presim.serving.steps.captured_step_times import CapturedSteps, with_captured
from presim.serving.steps.times import PricedEngine
from presim.system.files import FormatError, decode_json, make_folder, read_bytes, write_file
from presim.system.files.scratch import temporary_folder

if TYPE_CHECKING:
    from presim.hardware import Cluster

_FORMAT = 4
_MODULE = "presim.serving.engines.vllm_steps"
_LIMIT_S = 3600.0  # for torch.compile of a large model on a small machine
_LOG_LEVEL = "VLLM_LOGGING_LEVEL"

Progress = Callable[[str], None]


def engine_with_steps(
    engine: PricedEngine, config: dict[str, Any], steps: str, progress: Progress = lambda text: None
) -> PricedEngine:
    """The engine with steps as captured; arguments and errors as of `captured_steps`."""
    return with_captured(engine, captured_steps(engine, config, steps, progress))


def captured_steps(
    engine: PricedEngine, config: dict[str, Any], steps: str, progress: Progress = lambda text: None
) -> CapturedSteps:
    """Captured batches of an engine. ``steps``: captured, or the folder of a saved set.

    Raises:
        InputError: vLLM is not installed, the plan's steps are not captured, or the folder holds none of this engine.
        CaptureError: vLLM cannot be run here.
    """
    from presim.verbs.step_times import read_captured

    request, cluster = capture_request(engine, config), stage_cluster(engine)
    folder = (
        _cached_or_captured_set(request, cluster, progress)
        if steps == "captured"
        else _check_saved_set(Path(steps), request)
    )
    progress("simulating the captured steps")
    return read_captured(folder, cluster, engine.prices)


def stage_cluster(engine: PricedEngine) -> Cluster:
    """The GPUs of one pipeline stage of one data-parallel rank: what runs in a capture."""
    cluster, ranks = engine.cluster, engine.plan.tp
    if cluster.world_size == ranks:
        return cluster
    gpus_per_node = min(ranks, cluster.gpus_per_node)
    return msgspec.structs.replace(cluster, nodes=ranks // gpus_per_node, gpus_per_node=gpus_per_node)


def capture_request(engine: PricedEngine, config: dict[str, Any]) -> dict[str, Any]:
    """All that a capture depends on, as JSON."""
    longest = engine.limits.max_model_len
    return {
        "format": _FORMAT,
        "config": step_batches.config_for_vllm(config, engine.model, engine.plan),
        "arguments": step_batches.arguments(engine.plan, longest, engine.model),
        "gpu_arguments": step_batches.gpu_arguments(engine.cluster.gpu),
        "batches": [
            {"decodes": list(batch.decodes), "prefills": list(batch.prefills), "held_out": batch.held_out}
            for batch in step_batches.batches(engine.plan, longest, engine.limits.kv_tokens)
        ],
        "repeats": step_batches.REPEATS,
        "gpu": engine.cluster.gpu.id,
    }


def _check_saved_set(folder: Path, request: dict[str, Any]) -> Path:
    """The folder of a saved set, after a check of its model and arguments; another GPU is priced from it."""
    try:
        saved_request = decode_json(
            read_bytes(folder / "asked.json", "name `captured`, `composed` or a folder that --steps made")
        )
    except FormatError as error:
        raise InputError(
            f"{folder} holds no captured steps ({error}); name `captured`, `composed` or a folder that --steps made"
        ) from error
    for part in ("config", "arguments"):
        saved = saved_request.get(part, {})
        different = sorted(key for key in request[part] if saved.get(key) != request[part][key])
        if different:
            key = different[0]
            raise InputError(
                f"the steps of {folder} were captured with {key} = {saved.get(key)!r}, not {request[part][key]!r}; "
                "capture them with --steps captured"
            )
    return folder


def _cached_or_captured_set(request: dict[str, Any], cluster: Cluster, progress: Progress) -> Path:
    """The folder of these steps: in the cache, or captured now."""
    version = vllm_version()
    request_json = json.dumps(
        {**request, "vllm": version, "presim": importlib.metadata.version("presim")}, sort_keys=True
    )
    cached_set = (
        Path(platformdirs.user_cache_dir("presim")) / "steps" / hashlib.sha256(request_json.encode()).hexdigest()[:24]
    )
    if (cached_set / "steps.json").is_file():
        return cached_set
    make_folder(cached_set.parent)
    with temporary_folder("steps", cached_set.parent) as temporary:
        folder = temporary / "set"
        folder.mkdir()
        write_file(folder / "asked.json", request_json.encode())
        capture_steps(folder, cluster, progress)
        with contextlib.suppress(OSError):  # another process was first
            shutil.move(folder, cached_set)
    return cached_set


def vllm_version() -> str:
    """The installed vLLM's; InputError where there is none."""
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError(
            "steps are captured from vLLM, which is not installed for this Python: `make vllm` installs it, or leave "
            "--steps at composed"
        ) from error


def capture_steps(folder: Path, cluster: Cluster, progress: Progress) -> None:
    """Run vLLM with the batches of ``folder/asked.json`` on the emulated device, and keep the traces there.

    Raises:
        CaptureError: vLLM ended before all batches had run.
    """
    from presim.capture.capture_job import CaptureRequest, capture
    from presim.capture.launchers.launch import Launch
    from presim.capture.ranks.rank_selection import Checks, select
    from presim.trace import job_store

    progress("capturing steps of vLLM (once; minutes)")
    launch = Launch(_MODULE, (str(folder),), module=True)
    request = CaptureRequest(
        launch,
        select("all" if cluster.world_size > 1 else "0", cluster.world_size, Checks(0, 0.0)),
        steps=0,
        limit_s=_LIMIT_S,
        hides_output=True,
    )
    with _quiet_vllm():
        job = capture(request, cluster, progress)
    ended = job.traces[0].manifest
    if ended.exit != "ok":
        raise CaptureError(f"vLLM's steps could not be captured: {ended.error}; leave --steps at composed")
    job_store.save(job.traces, folder / "job", stands_for=job.stands_for, coverage=job.coverage, notes=job.notes)


@contextlib.contextmanager
def _quiet_vllm() -> Iterator[None]:
    """An environment in which vLLM logs errors alone, unless the user chose."""
    was_set = _LOG_LEVEL in os.environ
    os.environ.setdefault(_LOG_LEVEL, "ERROR")
    try:
        yield
    finally:
        if not was_set:
            del os.environ[_LOG_LEVEL]
