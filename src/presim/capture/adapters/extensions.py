"""Detects CUDA extensions that presim cannot capture, by the files they load.

An extension that has NVIDIA's runtime linked into it statically does not call the emulated one: its runtime asks the
driver for tables that are not documented, and does not get them. One that was built for another major version of CUDA
wants libraries that are not there. Both are recognised by what the file says, so that an error that looks like a broken
driver gets a name.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_REGISTER = b"__cudaRegisterFatBinary\0"  # what a runtime exports, and every object with device code calls
_KERNELS = b".nv_fatbin\0"
_ELF, _SECTION = struct.Struct("<16xHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNSYM = 11
# NVIDIA's own JPEG decoder, which torchvision's wheel brings and its import loads: it works where images are decoded on
# the GPU, and no step of training asks anything of it.
_WITHOUT_WORK = "libnvjpeg."
_OTHER_CUDA = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc)\.so\.(\d+)")


def loaded_libraries() -> list[Path]:
    """Shared libraries mapped into this process that are no part of the system."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if ".so" in line}
    return [Path(path) for path in sorted(paths) if not path.startswith(("/usr/", "/lib"))]


def own_runtime(libraries: Iterable[Path]) -> list[str]:
    """Names of those that hold kernels and a CUDA runtime of their own."""
    asked = [library for library in libraries if library.is_file() and not library.name.startswith(_WITHOUT_WORK)]
    return [library.name for library in asked if has_own_runtime(library)]


def has_own_runtime(library: Path) -> bool:
    """Whether a file has device code and asks no shared runtime to register it."""
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            names = dict(_sections(data))
            return _KERNELS in names and not _imports(data, names)
    except (struct.error, ValueError, OSError):
        return False  # no 64-bit ELF file


def _sections(data: mmap.mmap) -> Iterator[tuple[bytes, tuple[int, ...]]]:
    """Name (with its zero) and header of each section."""
    if data[:5] != b"\x7fELF\x02":
        raise ValueError
    header = _ELF.unpack_from(data)
    offset, size, count, strings = header[5], header[10], header[11], header[12]
    headers = [_SECTION.unpack_from(data, offset + index * size) for index in range(count)]
    for one in headers:
        start = headers[strings][4] + one[0]
        yield data[start : data.find(b"\0", start) + 1], one


def _imports(data: mmap.mmap, sections: dict[bytes, tuple[int, ...]]) -> bool:
    """Whether the dynamic symbol table names the registration without defining it."""
    table, strings = sections.get(b".dynsym\0"), sections.get(b".dynstr\0")
    if table is None or strings is None or table[1] != _DYNSYM:
        return False
    name = data.find(b"\0" + _REGISTER, strings[4], strings[4] + strings[5])
    if name < 0:
        return False
    wanted = name + 1 - strings[4]
    symbols = _SYMBOL.iter_unpack(data[table[4] : table[4] + table[5]])
    return any(symbol[0] == wanted and symbol[3] == 0 for symbol in symbols)


def explain(error: str, with_own_runtime: list[str]) -> str:
    """What the extensions have to do with an error, as an end to its sentence; empty where nothing."""
    other = _OTHER_CUDA.search(error)
    if other and "cannot open shared object file" in error and other.group(1) != "13":
        return f" (built for CUDA {other.group(1)}; presim emulates CUDA 13: install the extension's build for that)"
    if with_own_runtime and "cuda" in error.lower():
        return f" ({_unsupported(with_own_runtime)})"
    return ""


def notes(with_own_runtime: list[str]) -> list[str]:
    """A sentence about those that were loaded, whether or not something failed."""
    sentence = _unsupported(with_own_runtime)
    return [f"{sentence[0].upper()}{sentence[1:]}."] if with_own_runtime else []


def _unsupported(libraries: list[str]) -> str:
    return (
        f"unsupported: {', '.join(libraries)} has a CUDA runtime of its own linked in, which presim cannot stand in "
        "for; nothing that it asks of the GPU is seen. Use a build that links libcudart as a shared library"
    )
