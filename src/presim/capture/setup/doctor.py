"""Check whether this machine can capture, and name the command that fixes each problem."""

from __future__ import annotations

import enum
import subprocess
import sys
from pathlib import Path

import msgspec

from presim.capture.processes.variables import environment
from presim.capture.setup.environment import install_torch, torch_problem
from presim.capture.setup.machine import Machine
from presim.capture.setup.shim import build_shim, describe_outdated, require_shim
from presim.system.files.scratch import temporary_folder
from presim.units import gib

_LOW_DISK = 1 << 30  # enough for the log of a long run
_NO_DISK = 100 << 20
_PIP = f"{Path(sys.executable).name} -m pip install"


class CheckState(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    NOTE = "note"  # runs work; something may be missing later
    MISSING = "missing"  # no run works


class SetupCheck(msgspec.Struct, frozen=True):
    """One check."""

    name: str
    state: CheckState
    found: str  # the finding as a phrase
    mend: str = ""  # command that fixes it


class Examination(msgspec.Struct, frozen=True):
    """The answer of `presim doctor`."""

    works: bool  # whether `presim run` would work here
    checks: list[SetupCheck]
    schema: str = "presim-doctor/1"


def encode(content: Examination) -> str:
    """The checks as JSON."""
    return msgspec.json.format(msgspec.json.encode(content)).decode()


def text(content: Examination) -> str:
    """The checks in lines, with the commands that fix problems."""
    checks = content.checks
    width = max((len(check.name) for check in checks), default=0)
    lines = [f"{check.state:<7}  {check.name:<{width}}  {check.found}" for check in checks]
    mends = [f"  {check.name}: {check.mend}" for check in checks if check.mend]
    verdict = "`presim run` works here." if content.works else "`presim run` does not work here yet."
    return "\n".join([*lines, "", verdict, *(["To mend:", *mends] if mends else [])])


def examine(machine: Machine) -> tuple[SetupCheck, ...]:
    """Check a machine; runs work unless a check is `CheckState.MISSING`."""
    return (
        _system(machine),
        _torch(machine),
        _shim(machine),
        _hook(machine),
        _nvidia(machine),
        _triton(machine),
        _disk(machine),
    )


def _system(machine: Machine) -> SetupCheck:
    version = ".".join(map(str, machine.python))
    finding = f"Python {version} ({machine.interpreter}) on {machine.system}"
    if machine.system != "Linux x86_64":
        note = "; scripts can only be captured on Linux x86_64, but saved traces can be simulated anywhere"
        return SetupCheck("system", CheckState.MISSING, finding + note, "presim simulate DIR")
    if machine.python < (3, 11):
        return SetupCheck(
            "system", CheckState.MISSING, finding + "; presim needs 3.11 or newer", "python3.11 -m venv .venv"
        )
    return SetupCheck("system", CheckState.OK, finding)


def _torch(machine: Machine) -> SetupCheck:
    problem = torch_problem(machine.torch)
    if problem or machine.torch is None:
        return SetupCheck("PyTorch", CheckState.MISSING, str(problem), install_torch())
    finding = f"{machine.torch.version}, built for CUDA {machine.torch.cuda}"
    if missing := machine.torch_needs_missing:
        needs = f"{finding}; it cannot be imported without {', '.join(missing)}"
        return SetupCheck("PyTorch", CheckState.MISSING, needs, f"{_PIP} {' '.join(missing)}")
    return SetupCheck("PyTorch", CheckState.OK, finding)


def _shim(machine: Machine) -> SetupCheck:
    name, missing = "emulated CUDA libraries", machine.shim_missing
    if not missing and machine.shim_changed:
        return SetupCheck(name, CheckState.MISSING, describe_outdated(machine.shim_changed), build_shim())
    if not missing:
        return SetupCheck(name, CheckState.OK, f"built, in {machine.shim}")
    some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return SetupCheck(name, CheckState.MISSING, f"not built in {machine.shim}: {some}", build_shim())


def _hook(machine: Machine) -> SetupCheck:
    name = "operator hook"
    if torch_problem(machine.torch) is not None:
        return SetupCheck(name, CheckState.NOTE, "not checked: it needs a supported PyTorch")
    if machine.hook is not None:
        return SetupCheck(name, CheckState.OK, f"built, {machine.hook}")
    if machine.compiler is None:
        return SetupCheck(
            name, CheckState.MISSING, "not built for this PyTorch, and no C++ compiler", "apt-get install g++"
        )
    if not machine.cache_writable:
        finding = f"not built for this PyTorch, and {machine.cache} cannot be written"
        return SetupCheck(name, CheckState.MISSING, finding, "export XDG_CACHE_HOME=DIR")
    return SetupCheck(name, CheckState.OK, f"the first run compiles it with {machine.compiler} into {machine.cache}")


def _nvidia(machine: Machine) -> SetupCheck:
    count = len(machine.nvidia_packages)
    finding = f"{count} installed; a run does not use them" if count else "none; none are needed"
    return SetupCheck("nvidia-* packages", CheckState.OK, finding)


def _triton(machine: Machine) -> SetupCheck:
    if machine.triton:
        return SetupCheck("Triton", CheckState.OK, f"{machine.triton}, for torch.compile")
    mend = f"{_PIP} --no-deps 'triton{machine.triton_wanted}'"
    return SetupCheck("Triton", CheckState.NOTE, "not installed; scripts that call torch.compile need it", mend)


def _disk(machine: Machine) -> SetupCheck:
    free = machine.temporary_free_bytes
    finding = f"{gib(free)} free in {machine.temporary}"
    if free >= _LOW_DISK:
        return SetupCheck("disk", CheckState.OK, finding)
    state = CheckState.MISSING if free < _NO_DISK else CheckState.NOTE
    return SetupCheck("disk", state, f"{finding}, where capture logs are written", "export TMPDIR=DIR")


_PROBE = """
import torch
x = torch.ones(4, device="cuda")
torch.cuda.synchronize()
print(torch.cuda.get_device_name(), tuple(x.shape), torch.cuda.memory_allocated())
"""


def examine_deeply(gpu: str = "h100-sxm", limit_s: float = 60.0) -> SetupCheck:
    """Start PyTorch on the emulated libraries and create a tensor on the emulated GPU."""
    from presim.hardware import catalogue
    from presim.hardware.device_config import device_config

    name = "a tensor on the emulated GPU"
    with temporary_folder() as folder:
        device = Path(folder) / "device"
        device.write_text(device_config(catalogue.gpu(gpu), 1))
        variables = environment(require_shim(), device, Path(folder), {})
        command = [sys.executable, "-c", _PROBE]
        try:
            ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return SetupCheck(
                name, CheckState.MISSING, f"PyTorch had not created it after {limit_s:g} s", "presim doctor --deep"
            )
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or [f"code {ended.returncode}"])[-1]
        return SetupCheck(name, CheckState.MISSING, f"PyTorch failed: {last}", build_shim())
    return SetupCheck(name, CheckState.OK, f"created on {ended.stdout.strip()}")
