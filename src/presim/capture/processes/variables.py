"""The environment of a rank's process: the emulated device, and what the launcher would set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from presim.capture.launchers.deepspeed_launcher import deepspeed_variables
from presim.capture.launchers.launch import Worker, torchrun_variables
from presim.capture.launchers.mpi import hydra_variables, open_mpi_variables
from presim.capture.launchers.slurm import slurm_variables

# Used unless the user has set these.
FRAMEWORK_DEFAULTS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # run the engine in the script's process, because a trace covers one process
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it would compile CUDA sources at its first use
}
# torch.compile starts a process per core, each of which imports torch: 4 of the 14 s of CPU time of a small Megatron
# job with Transformer Engine on two cores. Compiling in the rank's own process takes less.
COMPILE_IN_PROCESS = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
SMALL_MACHINE = 8  # cores; with more, parallel compilation is worth the processes
_PACKAGE_ROOT = Path(__file__).parents[3]
_PROGRAMS = Path(__file__).parents[1] / "setup" / "programs"  # nvidia-smi


# The variables in which launchers pass a process's place. Those of presim's own launcher are removed.
PLACE_VARIABLES = {
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    *(
        name
        for scheme in (torchrun_variables, deepspeed_variables, slurm_variables, open_mpi_variables, hydra_variables)
        for name in scheme(Worker(0, 1, 1, 0))
        if name not in ("SLURM_JOB_ID", "SLURM_JOBID")
    ),
}


def environment(
    libraries: list[Path], device: Path, log: Path, launcher_variables: Mapping[str, str]
) -> dict[str, str]:
    """The script's environment: the preloaded shim and the launcher's variables (``launcher_variables``)."""
    variables = {name: value for name, value in os.environ.items() if name not in PLACE_VARIABLES}
    preload = [*(str(path) for path in libraries), *filter(None, [variables.get("LD_PRELOAD")])]
    paths = [str(_PACKAGE_ROOT), *filter(None, [variables.get("PYTHONPATH")])]
    variables |= {
        "LD_PRELOAD": ":".join(preload),
        "LD_LIBRARY_PATH": ":".join([str(libraries[0].parent), *filter(None, [variables.get("LD_LIBRARY_PATH")])]),
        "PYTHONPATH": ":".join(paths),
        "PATH": os.pathsep.join([str(_PROGRAMS), variables.get("PATH", os.defpath)]),
        "PRESIM_DEVICE": str(device),
        "PRESIM_LOG_DIR": str(log),
        **launcher_variables,
        "TORCH_NCCL_RANKS_PER_ROOT": "1000000",  # one unique id for any world size
        "TORCH_NCCL_ENABLE_MONITORING": "0",  # absent ranks send no heartbeats
    }
    variables.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
    variables.setdefault("PYTHONHASHSEED", "0")  # makes set order reproducible
    small = (os.cpu_count() or 1) <= SMALL_MACHINE
    for name, value in (FRAMEWORK_DEFAULTS | COMPILE_IN_PROCESS if small else FRAMEWORK_DEFAULTS).items():
        variables.setdefault(name, value)
    return variables
