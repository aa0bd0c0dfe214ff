"""Effects of preloading on a process: how its threads end and which libraries it opens."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from presim.capture.setup.shim import shim_libraries
from support import emulated

NOEXCEPT_THREAD = """
#include <thread>
extern "C" int _Py_IsFinalizing(void);
extern "C" int PyGILState_Ensure(void);
static void take_lock() noexcept { PyGILState_Ensure(); }
extern "C" void start() {
  std::thread([] { while (!_Py_IsFinalizing()) {} take_lock(); }).detach();
}
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the interpreter's name for its end changed; 3.14 is cured")
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
def test_a_thread_waiting_for_the_lock_at_exit_does_not_abort_the_process(tmp_path: Path) -> None:
    """PyTorch's autograd threads wait in noexcept functions, where an exception ends with exit code 134."""
    library = tmp_path / "thread.so"
    source = tmp_path / "thread.cpp"
    source.write_text(NOEXCEPT_THREAD)
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", source, "-o", library], check=True)
    libraries = shim_libraries()
    if not libraries:
        pytest.skip("the shim is not built: `make shim`")
    # The free at exit lets the thread run.
    code = f"import ctypes; held = [[i] for i in range(1_000_000)]; ctypes.CDLL({str(library)!r}).start()"
    for _ in range(3):
        environment = {"LD_PRELOAD": str(libraries[0])}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, check=False, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_libraries_opened_by_path_are_the_emulated_ones(tmp_path: Path) -> None:
    """PyTorch opens the nvidia packages' libraries by path; other versions and libraries are not replaced."""
    code = """
rt = ctypes.CDLL("libcudart.so.13")
rt.cudaDeviceSynchronize()  # writes a log: emulated.run reads one
address = lambda library: ctypes.cast(library.cudaMalloc, ctypes.c_void_p).value
for name in ("/nowhere/libcudart.so.13", "/nowhere/libcudart.so", "libcudart.so.13.0.96"):
    results[name] = address(ctypes.CDLL(name)) == address(rt)
for name in ("/nowhere/libcudart.so.12", "/nowhere/libnvJitLink.so.13"):
    try:
        ctypes.CDLL(name)
    except OSError:
        results[name] = "not found"
"""
    assert emulated.run(code, tmp_path).results == {
        "/nowhere/libcudart.so.13": True,
        "/nowhere/libcudart.so": True,
        "libcudart.so.13.0.96": True,
        "/nowhere/libcudart.so.12": "not found",
        "/nowhere/libnvJitLink.so.13": "not found",
    }
