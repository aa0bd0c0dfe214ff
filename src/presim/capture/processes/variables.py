"""The environment of a rank's process: the emulated device, and what the launcher would set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from presim.capture.launchers.deepspeed import deepspeed_variables
from presim.capture.launchers.launch import Place, torchrun_variables
from presim.capture.launchers.mpi import hydra_variables, open_mpi_variables
from presim.capture.launchers.slurm import slurm_variables

# Where the user has not said otherwise.
FRAMEWORK_DEFAULTS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a trace is of one process: the engine's work is to be in the script's
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # which would compile CUDA sources at its first use
}
# torch.compile starts a process for each core, which imports torch: 4 of the 14 s of CPU that a small job of Megatron
# with Transformer Engine takes on two cores. Compiling in the rank's own process takes less.
COMPILING_HERE = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
SMALL_MACHINE = 8  # cores; above, many kernels at a time are worth the processes
_PACKAGE_ROOT = Path(__file__).parents[3]


# Where launchers say a process's place. What this process's own launcher said is not for the script.
PLACING = {
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    *(
        name
        for scheme in (torchrun_variables, deepspeed_variables, slurm_variables, open_mpi_variables, hydra_variables)
        for name in scheme(Place(0, 1, 1, 0))
        if name not in ("SLURM_JOB_ID", "SLURM_JOBID")
    ),
}


def environment(libraries: list[Path], device: Path, log: Path, placed: Mapping[str, str]) -> dict[str, str]:
    """The script's environment: the shim before every other library, and what its launcher would set (``placed``)."""
    variables = {name: value for name, value in os.environ.items() if name not in PLACING}
    preload = [*(str(path) for path in libraries), *filter(None, [variables.get("LD_PRELOAD")])]
    paths = [str(_PACKAGE_ROOT), *filter(None, [variables.get("PYTHONPATH")])]
    variables |= {
        "LD_PRELOAD": ":".join(preload),
        "LD_LIBRARY_PATH": ":".join([str(libraries[0].parent), *filter(None, [variables.get("LD_LIBRARY_PATH")])]),
        "PYTHONPATH": ":".join(paths),
        "PRESIM_DEVICE": str(device),
        "PRESIM_LOG_DIR": str(log),
        **placed,
        "TORCH_NCCL_RANKS_PER_ROOT": "1000000",  # one unique id for any world
        "TORCH_NCCL_ENABLE_MONITORING": "0",  # nobody's heart beats at the other end
    }
    variables.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
    variables.setdefault("PYTHONHASHSEED", "0")  # sets have one order in every run
    small = (os.cpu_count() or 1) <= SMALL_MACHINE
    for name, value in (FRAMEWORK_DEFAULTS | COMPILING_HERE if small else FRAMEWORK_DEFAULTS).items():
        variables.setdefault(name, value)
    return variables
