"""Machine code of loops on disk, which is loaded without numba: importing numba takes longer than many a simulation.

A file has a header line with the function's name and LLVM's object code for this machine's CPU. Its name holds digests
of the loop's sources and of the CPU. It lies beside the loop's source, else in the user's cache folder; NUMBA_CACHE_DIR
overrides both.

A wheel has code for x86-64-v3, which nearly all x86-64 servers since 2015 run, in the folder ``loops`` beside this
file. It is made by ``python -m presim.verbs.prepare --portable FOLDER`` as the wheel is built, and used where no code
for the very CPU is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from presim.errors import InputError
from presim.system.files.write import write_file

_MAGIC = b"presim machine code 1 "
_FOLDER_VARIABLE = "NUMBA_CACHE_DIR"
_NONE_RETURNED = -2  # status of a function that returns None, in numba's calling convention; 0: a number
_CPU_VARIABLE, _FEATURES_VARIABLE = "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"  # numba compiles for these instead
PORTABLE_CPU = "x86-64-v3"
# What LLVM calls the features of x86-64-v3 (x86-64 psABI, table 3.1), without those of every x86-64.
PORTABLE_FEATURES = frozenset(
    (
        *("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
        *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    )
)
_WHEEL_FOLDER = Path(__file__).parent / "loops"
_engines: list[Any] = []  # own the memory of loaded code

NativeLoop = Callable[[int, int], int | None]


class StoredLoop:
    """Where the machine code of one loop is kept.

    Args:
        name: of the loop, with a digest of its sources.
        source: a file of the loop, beside which the code is kept if that folder can be written to.
    """

    def __init__(self, name: str, source: Path) -> None:
        self.name = name
        self._source = source

    def path(self) -> Path | None:
        """The file with the code; None where there is none."""
        kept_files = (folder / self._file() for folder in self._folders())
        return next(filter(Path.is_file, (*kept_files, *self._wheel_files())), None)

    def _wheel_files(self) -> list[Path]:
        """The file of the wheel, if this CPU can run it."""
        file = _WHEEL_FOLDER / f"{self.name}.{PORTABLE_CPU}.o"
        return [file] if file.is_file() and runs_portable_code(_host_features()) else []

    def load(self) -> NativeLoop | None:
        """The function of the addresses of two arrays of column addresses; None where no code is kept."""
        file = self.path()
        try:
            header, _, code = file.read_bytes().partition(b"\n") if file else (b"", b"", b"")
        except OSError:
            return None
        return load_object(header.removeprefix(_MAGIC).decode(), code) if header.startswith(_MAGIC) else None

    def keep(self, symbol: str, code: bytes) -> None:
        """Write the object code of a function; does nothing where it cannot be written."""
        if folder := self.folder():
            with contextlib.suppress(InputError):  # a full disk
                write_file(folder / self._file(), _MAGIC + symbol.encode() + b"\n" + code)

    def folder(self) -> Path | None:
        """The folder in which code can be kept; None if there is none."""
        return next(filter(_is_writable, self._folders()), None)

    @contextlib.contextmanager
    def locked(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock of the folder, so that one process compiles at a time. ``on_wait``: another has it."""
        folder = self.folder()
        if folder is None:
            yield
            return
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _file(self) -> str:
        return f"{self.name}.{_cpu_digest()}.o"

    def _folders(self) -> list[Path]:
        if override := os.environ.get(_FOLDER_VARIABLE):
            return [Path(override)]
        import platformdirs

        return [self._source.parent / "__pycache__", Path(platformdirs.user_cache_dir("presim")) / "loops"]


def load_object(symbol: str, code: bytes) -> NativeLoop:
    """A function in object code, by numba's calling convention: status = f(&result, &exception, columns, columns)."""
    llvm = _llvm()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    pointer = ctypes.c_void_p
    function = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, pointer, pointer)(engine.get_function_address(symbol))

    def call(program: int, state: int) -> int | None:
        result, exception = ctypes.c_int64(), ctypes.c_void_p()
        status = function(ctypes.addressof(result), ctypes.addressof(exception), program, state)
        if status == _NONE_RETURNED:
            return None
        if status:
            raise ArithmeticError(f"the compiled loop ended with status {status}, such as for a division by zero")
        return result.value

    return call


def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def portable_variables(folder: Path) -> dict[str, str]:
    """Environment in which loops are compiled for a wheel, into a folder."""
    features = ",".join(f"+{name}" for name in sorted(PORTABLE_FEATURES))
    return {_CPU_VARIABLE: PORTABLE_CPU, _FEATURES_VARIABLE: features, _FOLDER_VARIABLE: str(folder)}


def runs_portable_code(features: Mapping[str, bool]) -> bool:
    """Whether a CPU with these features, by LLVM's names, runs the wheel's code."""
    return all(features.get(name, False) for name in PORTABLE_FEATURES)


def _host_features() -> Mapping[str, bool]:
    import llvmlite.binding as llvm

    features: Mapping[str, bool] = llvm.get_host_cpu_features()
    return features


def _cpu_digest() -> str:
    """Digest of the name and features of the CPU for which code is made; `PORTABLE_CPU` by its name."""
    import llvmlite.binding as llvm

    name, features = os.environ.get(_CPU_VARIABLE), os.environ.get(_FEATURES_VARIABLE)
    if name == PORTABLE_CPU:
        return name
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    cpu = f"{name or llvm.get_host_cpu_name()} {features}"
    return hashlib.sha256(cpu.encode()).hexdigest()[:12]


def _is_writable(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)
    return False
