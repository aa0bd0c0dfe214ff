"""Steps of vLLM's own model runner: captured once, kept, and priced and simulated as any capture.

A kept set is a folder: the job as ``--save`` writes it, ``asked.json`` with the batches, ``steps.json`` with what was
in each step.
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
from presim.files import FormatError, decode_json, make_folder, read_bytes, write_file
from presim.scratch import temporary_folder
from presim.serving.steps import batches as asked_for
from presim.serving.steps.captured import Captured, with_captured
from presim.serving.steps.times import Engine

if TYPE_CHECKING:
    from presim.hardware import Cluster

_FORMAT = 4
_MODULE = "presim.serving.engines.vllm_steps"
_LIMIT_S = 3600.0  # for torch.compile of a large model on a small machine
_LOG_LEVEL = "VLLM_LOGGING_LEVEL"

Progress = Callable[[str], None]


def engine_with_steps(
    engine: Engine, config: dict[str, Any], steps: str, progress: Progress = lambda text: None
) -> Engine:
    """The engine with steps as captured; as `captured_steps`."""
    return with_captured(engine, captured_steps(engine, config, steps, progress))


def captured_steps(
    engine: Engine, config: dict[str, Any], steps: str, progress: Progress = lambda text: None
) -> Captured:
    """Captured batches of an engine. ``steps``: captured, or the folder of a kept set.

    Raises:
        InputError: vLLM is not installed, the plan's steps are not captured, or the folder holds none of this engine.
        CaptureError: vLLM cannot be run here.
    """
    from presim.verbs.step_times import read_captured

    asked, cluster = capture_request(engine, config), stage_cluster(engine)
    folder = _captured(asked, cluster, progress) if steps == "captured" else _given(Path(steps), asked)
    progress("simulating the captured steps")
    return read_captured(folder, cluster, engine.prices)


def stage_cluster(engine: Engine) -> Cluster:
    """The GPUs of one pipeline stage of one data-parallel rank: what runs in a capture."""
    cluster, ranks = engine.cluster, engine.plan.tp
    if cluster.world_size == ranks:
        return cluster
    near = min(ranks, cluster.gpus_per_node)
    return msgspec.structs.replace(cluster, nodes=ranks // near, gpus_per_node=near)


def capture_request(engine: Engine, config: dict[str, Any]) -> dict[str, Any]:
    """All that a capture depends on, as JSON."""
    longest = engine.limits.max_model_len
    return {
        "format": _FORMAT,
        "config": asked_for.config_for_vllm(config, engine.model, engine.plan),
        "arguments": asked_for.arguments(engine.plan, longest, engine.model),
        "gpu_arguments": asked_for.gpu_arguments(engine.cluster.gpu),
        "batches": [
            {"decodes": list(one.decodes), "prefills": list(one.prefills), "held_out": one.held_out}
            for one in asked_for.batches(engine.plan, longest, engine.limits.kv_tokens)
        ],
        "repeats": asked_for.REPEATS,
        "gpu": engine.cluster.gpu.id,
    }


def _given(folder: Path, asked: dict[str, Any]) -> Path:
    """A kept set, if it is of this model and these arguments; another GPU is priced from it."""
    try:
        kept = decode_json(
            read_bytes(folder / "asked.json", "name `captured`, `composed` or a folder that --steps made")
        )
    except FormatError as error:
        raise InputError(
            f"{folder} holds no captured steps ({error}); name `captured`, `composed` or a folder that --steps made"
        ) from error
    for part in ("config", "arguments"):
        wrong = sorted(key for key in asked[part] if kept.get(part, {}).get(key) != asked[part][key])
        if wrong:
            raise InputError(
                f"the steps of {folder} were captured with {wrong[0]} = {kept.get(part, {}).get(wrong[0])!r}, not "
                f"{asked[part][wrong[0]]!r}; capture them with --steps captured"
            )
    return folder


def _captured(asked: dict[str, Any], cluster: Cluster, progress: Progress) -> Path:
    """The folder of these steps: kept before, or captured now."""
    version = vllm_version()
    said = json.dumps({**asked, "vllm": version, "presim": importlib.metadata.version("presim")}, sort_keys=True)
    kept = Path(platformdirs.user_cache_dir("presim")) / "steps" / hashlib.sha256(said.encode()).hexdigest()[:24]
    if (kept / "steps.json").is_file():
        return kept
    make_folder(kept.parent)
    with temporary_folder("steps", kept.parent) as temporary:
        folder = temporary / "set"
        folder.mkdir()
        write_file(folder / "asked.json", said.encode())
        capture_steps(folder, cluster, progress)
        with contextlib.suppress(OSError):  # another process was first
            shutil.move(folder, kept)
    return kept


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
    from presim.capture.launchers.launch import Launch
    from presim.capture.ranks.selection import Checks, select
    from presim.capture.run import Request, capture
    from presim.trace import store

    progress("capturing steps of vLLM (once; minutes)")
    launch = Launch(_MODULE, (str(folder),), module=True)
    request = Request(
        launch,
        select("all" if cluster.world_size > 1 else "0", cluster.world_size, Checks(0, 0.0)),
        steps=0,
        limit_s=_LIMIT_S,
        hides_output=True,
    )
    with _quiet():
        job = capture(request, cluster, progress)
    ended = job.traces[0].manifest
    if ended.exit != "ok":
        raise CaptureError(f"vLLM's steps could not be captured: {ended.error}; leave --steps at composed")
    store.save(job.traces, folder / "job", stands_for=job.stands_for, coverage=job.coverage, notes=job.notes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """An environment in which vLLM logs errors alone, unless the user chose."""
    chosen = _LOG_LEVEL in os.environ
    os.environ.setdefault(_LOG_LEVEL, "ERROR")
    try:
        yield
    finally:
        if not chosen:
            del os.environ[_LOG_LEVEL]
