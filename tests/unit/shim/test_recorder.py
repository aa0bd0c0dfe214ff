"""The capture log with forks, child processes, threads, SIGKILL and a full disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from presim.capture.reading.log import Log, read_log
from presim.capture.setup.shim import shim_libraries
from support import emulated

ALLOCATE = """
rt = ctypes.CDLL("libcudart.so.13")
block = ctypes.c_void_p()
rt.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(1 << 20))

def fill(size):
    return rt.cudaMemsetAsync(block, 0, ctypes.c_size_t(size), None)
"""


def run_to_the_end(code: str, directory: Path) -> tuple[int, Log]:
    """Run code that ends abnormally; return its exit status and log."""
    libraries = shim_libraries()
    if not libraries:
        pytest.skip("the shim is not built: `make shim`")
    log = directory / "log"
    log.mkdir()
    device = directory / "device"
    device.write_text("name GPU\ncount 1\n")
    environment = {
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "PRESIM_DEVICE": str(device),
        "PRESIM_LOG_DIR": str(log),
    }
    command = [sys.executable, "-c", "import ctypes, os\n" + ALLOCATE + code]
    done = subprocess.run(command, env=environment, check=False, timeout=60)
    return done.returncode, read_log(log)


def test_a_forked_child_writes_nothing_and_has_no_device(tmp_path: Path) -> None:
    """CUDA does not survive a fork, and two processes in one log would mix."""
    code = """
    fill(1)
    child = os.fork()
    if child == 0:
        os._exit(rt.cudaMemsetAsync(block, 0, ctypes.c_size_t(2), None) + 10)
    results["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with section("after"):
        fill(3)
    """
    captured = emulated.run(ALLOCATE + at_margin(code), tmp_path)
    assert captured.results["child"] == 13
    assert captured.work("after") == ["memset bytes=3"]
    assert "memset bytes=2" not in captured.log.texts


def test_a_child_program_has_no_log(tmp_path: Path) -> None:
    """It inherits the environment, but its parent's log is in use."""
    code = """
    import subprocess, sys
    fill(1)
    program = "import ctypes; print(ctypes.CDLL('libcudart.so.13').cudaDeviceSynchronize())"
    with section("child"):
        results["child"] = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    """
    captured = emulated.run(ALLOCATE + at_margin(code), tmp_path)
    assert captured.results["child"] == "0\n"
    assert captured.sections["child"][0] == captured.sections["child"][1]


def test_no_record_of_several_threads_is_lost(tmp_path: Path) -> None:
    """Four threads write more records than the file's first chunk holds; times never decrease."""
    code = """
    import threading
    def many(size):
        for _ in range(20000):
            fill(size)
    threads = [threading.Thread(target=many, args=(size,)) for size in (1, 2, 3, 4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    """
    log = emulated.run(ALLOCATE + at_margin(code), tmp_path).log
    work = log.records[log.records["kind"] == emulated.WORK]
    counts = {log.texts[index]: int(count) for index, count in zip(*np.unique(work["work"], return_counts=True))}
    assert counts == {f"memset bytes={size}": 20000 for size in (1, 2, 3, 4)}
    assert (np.diff(log.records["cpu_ns"]) >= 0).all()


def test_the_log_survives_a_kill(tmp_path: Path) -> None:
    """The log has everything before SIGKILL, including the counts of calls."""
    code = """
for size in range(1, 1001): fill(size)
rt.cudaMipmappedArrayGetSparseProperties(None, None)
rt.cudaMipmappedArrayGetSparseProperties(None, None)
os.kill(os.getpid(), 9)
"""
    status, log = run_to_the_end(code, tmp_path)
    assert status == -9
    work = log.records[log.records["kind"] == emulated.WORK]
    assert [log.texts[index] for index in work["work"]] == [f"memset bytes={size}" for size in range(1, 1001)]
    assert log.calls["cudaMipmappedArrayGetSparseProperties"] == 2


def test_a_full_disk_ends_the_log_but_not_the_program(tmp_path: Path) -> None:
    """Later records are dropped and marked so in the header; earlier records are complete."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
for size in range(1, 60001): assert fill(size % 100 + 1) == 0
os._exit(7)
"""
    status, log = run_to_the_end(code, tmp_path)
    assert status == 7
    assert log.disk_full
    assert 40000 < len(log.records) < 45000
    assert (log.records["work"] < len(log.texts)).all()


def test_times_are_the_process_cpu_time(tmp_path: Path) -> None:
    """They are close to the process's own measurement, divided by this machine's slowdown."""
    code = """
    import time
    begin = time.process_time_ns()
    fill(1)
    while time.process_time_ns() < begin + 20_000_000: pass
    fill(2)
    """
    captured = emulated.run(ALLOCATE + at_margin(code), tmp_path)
    times = captured.log.records[captured.log.records["kind"] == emulated.WORK]["cpu_ns"]
    assert 19_000_000 / 5 <= times[1] - times[0] <= 20_000_000 * 5


def test_long_computation_counts_the_same_whatever_the_caches_hold(tmp_path: Path) -> None:
    """SHA-1 of 30 MB between short pieces of work evicts their cache lines, but has no misses of its own."""
    code = """
    import hashlib, time
    data = bytes(30_000_000)
    spent = results["spent"] = []
    for _ in range(3000): fill(2)  # the pace of this machine is known before the first piece
    for piece in range(12):
        fill(1)
        begin = time.process_time_ns()
        hashlib.sha1(data).digest()
        spent.append(time.process_time_ns() - begin)
        for _ in range(3000): fill(2)
    """
    captured = emulated.run(ALLOCATE + at_margin(code), tmp_path)
    work = captured.log.records[captured.log.records["kind"] == emulated.WORK]
    texts = np.array([captured.log.texts[index] for index in work["work"]])
    begins = np.flatnonzero(texts == "memset bytes=1")
    took = work["cpu_ns"][begins + 1] - work["cpu_ns"][begins]
    share = took / np.array(captured.results["spent"])
    # where another process takes half of the core meanwhile, it takes longer and counts the same
    assert np.maximum(took / took[0], share / share[0]).min() > 0.5


def at_margin(code: str) -> str:
    """Remove the indentation of code in a test."""
    return "\n".join(line[4:] for line in code.split("\n"))


def test_an_interruption_of_the_shim_does_not_stop_the_clock(tmp_path: Path) -> None:
    """An interruption inside the shim is not CPU time; the program's later CPU time still counts."""
    code = """
    import time
    own = ctypes.CDLL(None)["_ZN6presim12add_own_timeEl"]
    def work(size):
        end = time.process_time_ns() + 20_000_000
        while time.process_time_ns() < end:
            pass
        fill(size)
    fill(1)
    own(ctypes.c_long(10_000_000_000))
    fill(2)
    work(3)
    work(4)
    """
    captured = emulated.run(ALLOCATE + at_margin(code), tmp_path)
    records = captured.log.records[captured.log.records["kind"] == 0]
    times = records["cpu_ns"].astype(np.int64)[-4:]
    assert times[1] == times[0]
    assert all(19_000_000 / 5 < took < 200_000_000 for took in np.diff(times[1:]))
