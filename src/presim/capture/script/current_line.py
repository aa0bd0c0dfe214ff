"""Find the line that a script is at, from another process too and while the script hangs in C code."""

from __future__ import annotations

import faulthandler
import os
import re
import select
import signal
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType

from presim.capture.script.package_folders import PACKAGE_FOLDERS

_SIGNAL = signal.SIGUSR2
_FILE = "current-line"
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)
PRESIM_DIR = str(Path(__file__).parents[1])
_STDLIB = sysconfig.get_path("stdlib") + "/"
_OF_TORCH = (*(folder + "torch/" for folder in PACKAGE_FOLDERS), PRESIM_DIR)
_NOT_OWN = (_STDLIB, *PACKAGE_FOLDERS, PRESIM_DIR, "<")


def enable_stack_dumps(directory: Path) -> None:
    """Dump stacks on the signal from now on. Called in the script's process."""
    file = (directory / _FILE).open("wb")  # stays open while the process lives
    faulthandler.register(_SIGNAL, file.fileno(), all_threads=True)
    _open_files.append(file)


_open_files: list[object] = []


def query_line(process: int, directory: Path, timeout_s: float = 1.0) -> str:
    """The innermost line of the user's code as ``file.py:12``; empty without a reply. Called in the launcher."""
    path = directory / _FILE
    if not path.exists():
        return ""
    os.kill(process, _SIGNAL)
    for _ in range(20):
        select.select([], [], [], timeout_s / 20)
        if line := innermost(path.read_text(errors="replace")):
            return line
    return ""


def innermost(dump: str) -> str:
    """The first frame of a fault handler's dump that belongs to the user's code."""
    return next((f"{file}:{line}" for file, line in _FRAME.findall(dump) if is_own(file)), "")


def calling_line() -> str:
    """The innermost line of the user's code, else of the code that called torch."""
    frame: FrameType | None = sys._getframe(1)
    outside = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_own(file):
            return f"{file}:{frame.f_lineno}"
        if not outside and "/torch/" not in file and not file.startswith(("<", PRESIM_DIR)):
            outside = f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return outside or "(backward)"


def program_frame(frame: FrameType | None = None) -> FrameType | None:
    """The innermost frame, from one on, that belongs neither to Python nor to PyTorch or presim; None without one."""
    frame = frame or sys._getframe(1)
    while frame is not None and (is_python(frame.f_code.co_filename) or is_torch(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def is_python(file: str) -> bool:
    """Whether a source file belongs to Python itself, whose functions act on behalf of their caller."""
    return file.startswith("<frozen") or (file.startswith(_STDLIB) and not file.startswith(PACKAGE_FOLDERS))


def is_torch(file: str) -> bool:
    """Whether a source file is PyTorch's or presim's."""
    return file.startswith(_OF_TORCH)


def raising_line(error: BaseException) -> str:
    """The innermost line of the user's code that an exception passed through; empty if none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{frame.filename}:{frame.lineno}" for frame in reversed(frames) if is_own(frame.filename)), "")


def is_own(file: str) -> bool:
    """Whether a source file is the user's: not Python's, a package's or presim's."""
    return not file.startswith(_NOT_OWN)
