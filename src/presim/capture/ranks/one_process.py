"""Programs that use several GPUs from one process: `torch.nn.DataParallel`, models split by hand, device maps.

Without a launcher, presim starts a program once for each GPU. Copies that join no process group and put data on several
GPUs would share these, so the job is one process that has them all: it runs again, alone. So does one that raised with
data on several GPUs, although it had joined a group: accelerate joins one wherever there are ranks, and then refuses
models with a device map.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from presim.capture.launchers.launch import Launch
from presim.capture.processes.launch_config import LaunchConfig, Wave
from presim.capture.processes.rank_outcome import read_trace
from presim.capture.processes.wave import run_wave
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from presim.trace.schema import Manifest

_AGAIN = "running the script again, as one process with all GPUs"
_RULE = "one process uses all GPUs"


def is_one_process(captured_job: Job, program: Launch) -> bool:
    """Whether the program is one for a single process that uses several GPUs of its node."""
    manifests = [trace.manifest for trace in captured_job.traces]
    has_launcher = program.launcher not in ("", "python")
    is_one_node = manifests[0].world_size == manifests[0].gpus_per_node > 1
    joins_group = any(manifest.has_process_group for manifest in manifests)
    if has_launcher or not is_one_node or (joins_group and all(manifest.exit != "raised" for manifest in manifests)):
        return False
    return any(_gpus_with_data(manifest) > 1 for manifest in manifests)


def _gpus_with_data(manifest: Manifest) -> int:
    """GPUs on which the process held more than a context."""
    return sum(use.own_bytes > manifest.context_bytes for use in manifest.gpus)


def capture_one_process(
    steps: int | None, setting: LaunchConfig, progress: Callable[[str], None], *, hides_output: bool
) -> Job:
    """Run the program once, with all GPUs of the node and without a launcher's variables.

    ``hides_output``: show what it prints only if it fails, because the copies have printed it.

    Raises:
        CaptureError: it cannot be run.
    """
    one_process = dataclasses.replace(setting, is_one_process=True, hides_output=setting.hides_output or hides_output)
    wave = Wave((0,), steps)
    with run_wave(
        wave, one_process, lambda: progress("running the script again, as one process with all GPUs")
    ) as captured:
        trace = read_trace(captured[0], one_process)
    represented = {0: range(1, setting.cluster.world_size)}
    return Job((trace,), represented, RankCoverage(_RULE, steps=len(trace.steps())))
