"""Detect CUDA extensions that presim cannot capture, by the files they load.

An extension with NVIDIA's runtime linked in statically does not call the emulated runtime; its own runtime queries the
driver for undocumented tables and fails. An extension built for another major version of CUDA needs other libraries.
Both are recognised from the file, so that an error that looks like a broken driver is explained.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_REGISTER = b"__cudaRegisterFatBinary\0"  # exported by a runtime and called by every object with device code
_KERNELS = b".nv_fatbin\0"
_ELF, _SECTION = struct.Struct("<16xHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNSYM = 11
# NVIDIA's JPEG decoder, loaded with torchvision: it decodes images on the GPU, and training steps do not use it.
_IGNORED = "libnvjpeg."
_OTHER_CUDA = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc)\.so\.(\d+)")


def loaded_libraries() -> list[Path]:
    """Shared libraries mapped into this process that do not belong to the system."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if ".so" in line}
    return [Path(path) for path in sorted(paths) if not path.startswith(("/usr/", "/lib"))]


def libraries_with_own_runtime(libraries: Iterable[Path]) -> list[str]:
    """Names of the libraries that contain kernels and their own CUDA runtime."""
    candidates = [library for library in libraries if library.is_file() and not library.name.startswith(_IGNORED)]
    return [library.name for library in candidates if has_own_runtime(library)]


def has_own_runtime(library: Path) -> bool:
    """Whether a file has device code and does not register it with a shared runtime."""
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            names = dict(_sections(data))
            return _KERNELS in names and not _imports(data, names)
    except (struct.error, ValueError, OSError):
        return False  # not a 64-bit ELF file


def _sections(data: mmap.mmap) -> Iterator[tuple[bytes, tuple[int, ...]]]:
    """Name (with its zero byte) and header of each section."""
    if data[:5] != b"\x7fELF\x02":
        raise ValueError
    header = _ELF.unpack_from(data)
    offset, size, count, strings = header[5], header[10], header[11], header[12]
    headers = [_SECTION.unpack_from(data, offset + index * size) for index in range(count)]
    for section in headers:
        start = headers[strings][4] + section[0]
        yield data[start : data.find(b"\0", start) + 1], section


def _imports(data: mmap.mmap, sections: dict[bytes, tuple[int, ...]]) -> bool:
    """Whether the dynamic symbol table imports the registration function."""
    table, strings = sections.get(b".dynsym\0"), sections.get(b".dynstr\0")
    if table is None or strings is None or table[1] != _DYNSYM:
        return False
    name = data.find(b"\0" + _REGISTER, strings[4], strings[4] + strings[5])
    if name < 0:
        return False
    name_offset = name + 1 - strings[4]
    symbols = _SYMBOL.iter_unpack(data[table[4] : table[4] + table[5]])
    return any(symbol[0] == name_offset and symbol[3] == 0 for symbol in symbols)


def explain(error: str, library_names: list[str]) -> str:
    """How the extensions explain an error, as a suffix of its message; empty if they do not."""
    other = _OTHER_CUDA.search(error)
    if other and "cannot open shared object file" in error and other.group(1) != "13":
        return f" (built for CUDA {other.group(1)}; presim emulates CUDA 13: install the extension's build for that)"
    if library_names and "cuda" in error.lower():
        return f" ({_unsupported(library_names)})"
    return ""


def notes(library_names: list[str]) -> list[str]:
    """A note on extensions that were loaded, whether or not something failed."""
    sentence = _unsupported(library_names)
    return [f"{sentence[0].upper()}{sentence[1:]}."] if library_names else []


def _unsupported(libraries: list[str]) -> str:
    return (
        f"unsupported: {', '.join(libraries)} contains its own CUDA runtime, which presim cannot replace, so its work "
        "on the GPU is not captured. Use a build that links libcudart as a shared library"
    )
