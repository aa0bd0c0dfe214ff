"""Captures kept by what determines them, so that cases which differ in nothing that a script sees share one."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import msgspec
import platformdirs

from presim.capture.capture_job import OLDEST_CAPABILITY, CaptureRequest, capture
from presim.capture.launchers.launch import Launch
from presim.capture.processes.kept_forks import KeptForks
from presim.capture.ranks.rank_selection import Selection
from presim.capture.setup.capture_version import capture_digest
from presim.errors import InputError
from presim.hardware.catalogue import find
from presim.hardware.cluster import Cluster
from presim.hardware.device_config import device_config
from presim.hardware.gpu_schema import Gpu
from presim.trace import job_store
from presim.trace.schema import Trace
from presim_study.plan import Plan

_OLDEST = "t4"  # of compute capability 7.5
_KEPT = ("ok", "stopped", "out_of_memory")  # ways to end that come again; others are tried again


class Captures:
    """Traces by recipe, arguments, rank and emulated device.

    Those in the user's cache also go by the code that captures; those in a ``folder`` that was named are its owner's,
    and are used whichever version made them.
    """

    def __init__(self, recipes: Path, folder: Path | None = None, limit_s: float = 600.0) -> None:
        self.recipes = recipes
        self.folder = folder or Path(platformdirs.user_cache_dir("presim")) / "captures"
        self.limit_s = limit_s
        self._code = capture_digest() if folder is None else ""
        self._forks = KeptForks()

    def close(self) -> None:
        """End the processes that are kept to capture with."""
        self._forks.close()

    def traces(self, plan: Plan) -> list[Trace]:
        """The traces of the plan's ranks, captured where they are not kept yet."""
        return [self._trace(plan, rank) for rank in plan.ranks]

    def has(self, plan: Plan) -> bool:
        """Whether all of the plan's captures are kept."""
        script = self.recipes / plan.recipe
        return all((self.folder / self._key(plan, script, rank) / job_store.JOB_FILE).exists() for rank in plan.ranks)

    def _trace(self, plan: Plan, rank: int) -> Trace:
        script = self.recipes / plan.recipe
        if not script.is_file():
            raise InputError(f"there is no recipe {script}; name the folder of the recipes with --recipes")
        kept = self.folder / self._key(plan, script, rank)
        if (kept / job_store.JOB_FILE).exists():
            return job_store.load(kept).traces[rank]
        program, cluster = Launch(str(script), plan.args), emulated(plan.cluster)
        request = CaptureRequest(program, Selection((rank,)), plan.steps, self.limit_s, hides_output=True)
        forks = self._forks.of(script, cluster)
        (trace,) = capture(request, cluster, forks=forks).traces
        if trace.manifest.exit in _KEPT:
            job_store.save([trace], kept)
        return trace

    def _key(self, plan: Plan, script: Path, rank: int) -> str:
        cluster = emulated(plan.cluster)
        parts = (
            *_texts(script),
            *plan.args,
            f"{rank} {plan.steps} {cluster.nodes} {cluster.gpus_per_node} {cluster.gpu.id}",
            device_config(cluster.gpu, cluster.gpus_per_node),
            os.environ.get("PYTHONPATH", ""),
            self._code,
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def emulated(cluster: Cluster) -> Cluster:
    """What a case's ranks are captured on: its cluster, or one of the oldest GPUs that PyTorch's builds have code for.

    Those, too, with as much memory as the case's GPU has; prices are the case's own.
    """
    gpu = cluster.gpu
    if (gpu.compute_major, gpu.compute_minor) >= OLDEST_CAPABILITY:
        return cluster
    stand_in = msgspec.structs.replace(
        find(Gpu, _OLDEST), memory_bytes=gpu.memory_bytes, context_bytes=gpu.context_bytes
    )
    return msgspec.structs.replace(cluster, gpu=stand_in)


def _texts(script: Path) -> list[str]:
    """The recipe, the files beside it that it imports, and those that they import."""
    found, new = {script}, [script]
    while new:
        names = re.findall(r"^\s*(?:import|from) (\w+)", new.pop().read_text(), re.MULTILINE)
        beside = {path for name in names if (path := script.parent / f"{name}.py").is_file()} - found
        found |= beside
        new += beside
    return [path.read_text() for path in sorted(found)]
