"""`nvidia-smi` for scripts that start it: the GPUs that the emulated NVML lists, as NVIDIA's program prints them.

The table, ``-L`` and ``--query-gpu=… --format=csv`` are answered; ``-i`` and ``--id`` choose a GPU. What the emulated
GPU does not have, such as a temperature, is ``[N/A]``, as NVIDIA's program says of what a GPU lacks. It runs without
presim's packages, and so needs only Python's own.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence

_LIBRARY = "libnvidia-ml.so.1"
_CAPTURE = "PRESIM_DEVICE"  # set within a capture
_TEXT_BYTES = 96
_MIB = 2**20
_REFUSED = 2
_WIDTH = 79
_ABSENT = "[N/A]"


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class EmulatedGpus:
    """The GPUs of the emulated NVML."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_LIBRARY)
        self._library.nvmlInit_v2()
        count = ctypes.c_uint(0)
        self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        self.count = count.value

    def driver(self) -> str:
        """The driver's version."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._library.nvmlSystemGetDriverVersion(text, _TEXT_BYTES)
        return text.value.decode()

    def cuda(self) -> str:
        """The version of CUDA that the driver has."""
        number = ctypes.c_int(0)
        self._library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def text(self, function: str, gpu: int) -> str:
        """A text that an NVML function says of a GPU."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        getattr(self._library, function)(self._handle(gpu), text, ctypes.c_uint(_TEXT_BYTES))
        return text.value.decode()

    def memory(self, gpu: int) -> _Memory:
        """Bytes of a GPU's memory."""
        memory = _Memory()
        self._library.nvmlDeviceGetMemoryInfo(self._handle(gpu), ctypes.byref(memory))
        return memory

    def capability(self, gpu: int) -> str:
        """The compute capability."""
        major, minor = ctypes.c_int(0), ctypes.c_int(0)
        self._library.nvmlDeviceGetCudaComputeCapability(self._handle(gpu), ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def _handle(self, gpu: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(gpu), ctypes.byref(handle))
        return handle


_FIELDS: dict[str, Callable[[EmulatedGpus, int], str]] = {
    "index": lambda _, gpu: str(gpu),
    "count": lambda gpus, _: str(gpus.count),
    "name": lambda gpus, gpu: gpus.text("nvmlDeviceGetName", gpu),
    "gpu_name": lambda gpus, gpu: gpus.text("nvmlDeviceGetName", gpu),
    "uuid": lambda gpus, gpu: gpus.text("nvmlDeviceGetUUID", gpu),
    "gpu_uuid": lambda gpus, gpu: gpus.text("nvmlDeviceGetUUID", gpu),
    "driver_version": lambda gpus, _: gpus.driver(),
    "compute_cap": lambda gpus, gpu: gpus.capability(gpu),
    "memory.total": lambda gpus, gpu: f"{gpus.memory(gpu).total // _MIB} MiB",
    "memory.free": lambda gpus, gpu: f"{gpus.memory(gpu).free // _MIB} MiB",
    "memory.used": lambda gpus, gpu: f"{gpus.memory(gpu).used // _MIB} MiB",
    "utilization.gpu": lambda _gpus, _gpu: "0 %",
    "utilization.memory": lambda _gpus, _gpu: "0 %",
}


def table(gpus: EmulatedGpus, chosen_gpus: Sequence[int]) -> list[str]:
    """Lines of the table that the program prints without options."""
    rule = "+" + "-" * (_WIDTH - 2) + "+"
    versions = f" NVIDIA-SMI {gpus.driver()}    Driver Version: {gpus.driver()}    CUDA Version: {gpus.cuda()}"
    lines = [rule, f"|{versions:<{_WIDTH - 2}}|", rule]
    for gpu in chosen_gpus:
        memory = gpus.memory(gpu)
        size_text = f"{memory.used // _MIB}MiB / {memory.total // _MIB}MiB"
        name = f"{gpu:>4}  {gpus.text('nvmlDeviceGetName', gpu)}"
        lines += [f"|{name:<44}{size_text:>24}{'0%':>8} |", rule]
    return lines


def query(gpus: EmulatedGpus, chosen_gpus: Sequence[int], fields: Sequence[str], form: Sequence[str]) -> list[str]:
    """Lines of ``--query-gpu=FIELD,… --format=csv[,noheader][,nounits]``."""
    lines = [] if "noheader" in form else [", ".join(_header(name, form) for name in fields)]
    for gpu in chosen_gpus:
        values = [_FIELDS[name](gpus, gpu) if name in _FIELDS else _ABSENT for name in fields]
        lines.append(", ".join(value.partition(" ")[0] if _has_unit(value, form) else value for value in values))
    return lines


def _header(name: str, form: Sequence[str]) -> str:
    unit = "[MiB]" if name.startswith("memory.") else "[%]" if name.startswith("utilization.") else ""
    return name if "nounits" in form or not unit else f"{name} {unit}"


def _has_unit(value: str, form: Sequence[str]) -> bool:
    return "nounits" in form and value.endswith((" MiB", " %"))


def answer(gpus: EmulatedGpus, words: Sequence[str]) -> tuple[int, list[str]]:
    """The exit code, and the lines for a command's words."""
    options = _options(words)
    which = options.pop("-i", options.pop("--id", ""))
    if not all(text.strip().isdigit() and int(text) < gpus.count for text in which.split(",") if which):
        return 6, ["No devices were found"]
    chosen_gpus = [int(text) for text in which.split(",")] if which else list(range(gpus.count))
    form = options.pop("--format", "csv").split(",")
    if "-L" in options or "--list-gpus" in options:
        names = [(gpu, gpus.text("nvmlDeviceGetName", gpu)) for gpu in chosen_gpus]
        return 0, [f"GPU {gpu}: {name} (UUID: {gpus.text('nvmlDeviceGetUUID', gpu)})" for gpu, name in names]
    if "--query-gpu" in options:
        return 0, query(gpus, chosen_gpus, [name.strip() for name in options["--query-gpu"].split(",")], form)
    if any(name.startswith("--query-") for name in options):
        return 0, []  # nothing else runs on the GPUs
    if options:
        return _REFUSED, [f"presim's nvidia-smi does not have {', '.join(options)}"]
    return 0, table(gpus, chosen_gpus)


def _options(words: Sequence[str]) -> dict[str, str]:
    """Values by option: ``--name=value``, ``--name value`` or ``-i value``."""
    options: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("-"):
            name, _, value = word.partition("=")
            options[name] = value
        elif name:
            options[name] = word
        else:
            options[word] = ""  # a subcommand, such as topo
    return options


def main() -> int:
    """Write the answer to this process's words; the exit code."""
    if _CAPTURE not in os.environ:
        sys.stderr.write("presim's nvidia-smi answers only within presim run\n")
        return _REFUSED
    code, lines = answer(EmulatedGpus(), sys.argv[1:])
    (sys.stderr if code == _REFUSED else sys.stdout).write("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
