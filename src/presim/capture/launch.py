"""Start the script's process on the emulated device and see it through to its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from presim.capture.launchers.deepspeed import deepspeed_variables
from presim.capture.launchers.launch import Place, torchrun_variables
from presim.capture.launchers.mpi import hydra_variables, open_mpi_variables
from presim.capture.launchers.slurm import slurm_variables
from presim.capture.whereabouts import ask
from presim.errors import CaptureError

_ADDR_NO_RANDOMIZE = 0x0040000  # sys/personality.h
# Where the user has not said otherwise.
FRAMEWORK_DEFAULTS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a trace is of one process: the engine's work is to be in the script's
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # which would compile CUDA sources at its first use
}
_PACKAGE_ROOT = Path(__file__).parent.parent.parent


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
    for name, value in FRAMEWORK_DEFAULTS.items():
        variables.setdefault(name, value)
    return variables


def supervise(
    control: Path,
    variables: dict[str, str],
    *,
    limit_s: float,
    python: Sequence[str] = (),
    script_stdout: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> int:
    """Run the script's process to its end and return its exit code; negative: the signal that ended it.

    The process gets a group of its own, so that whatever it starts ends with it: on Ctrl-C, on an error here, and
    when ``limit_s`` seconds have passed. What the script prints goes to ``script_stdout`` (None: where ours goes).
    ``python``: options of the interpreter.

    Raises:
        CaptureError: the limit has passed.
    """
    command = [sys.executable, *python, "-m", "presim.capture.runner", str(control)]
    deadline = time.monotonic() + limit_s
    with _process(command, variables, script_stdout) as process:
        while True:
            try:
                return process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                progress()
            if time.monotonic() > deadline:
                line = ask(process.pid, control.parent)
                place = f" and is at {line}" if line else ""
                raise CaptureError(
                    f"the script had not ended after {limit_s:g} s{place}; it may wait for a value that the emulated "
                    "device does not compute. Give it more with --limit SECONDS, or fewer steps with --steps N"
                )


@contextlib.contextmanager
def _process(command: list[str], variables: dict[str, str], stdout: int | None) -> Iterator[subprocess.Popen[bytes]]:
    personality = ctypes.CDLL(None).personality
    process = subprocess.Popen(
        command,
        env=variables,
        stdout=stdout,
        start_new_session=True,
        # PyTorch frees in the order of addresses here and there; a kernel that refuses keeps its random ones.
        preexec_fn=lambda: personality(_ADDR_NO_RANDOMIZE),
    )
    try:
        yield process
    finally:
        _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Politely, then for certain; a second Ctrl-C does not leave it running."""
    with _uninterrupted():
        _end(process)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C comes to the main thread only
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            continue
        if not _group_alive(process.pid):
            return


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
