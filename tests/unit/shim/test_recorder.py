"""The capture log under what happens to processes: forks, children, threads, a kill, a full disk."""

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
    """Run code that does not end well, and return its status and log."""
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
    """It inherits the environment, and its parent's log is in use."""
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


def test_threads_lose_nothing(tmp_path: Path) -> None:
    """Four threads, more records than the first chunk of the file holds; time never goes back."""
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
    """Everything asked before SIGKILL is there, the counts of calls included."""
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


def test_a_full_disk_ends_the_log_and_not_the_program(tmp_path: Path) -> None:
    """Later records are dropped and the header says so; what is there is whole."""
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


def test_time_is_what_the_process_computed(tmp_path: Path) -> None:
    """About what it measures itself: divided by how much slower this machine is than the reference."""
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


def test_long_computing_counts_alike_whatever_it_leaves_in_the_caches(tmp_path: Path) -> None:
    """SHA-1 of 30 MB between short work that finds its lines gone: it waits for none of its own."""
    code = """
    import hashlib, time
    data = bytes(30_000_000)
    spent = results["spent"] = []
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
    assert share.min() > 0.75 * share[0]


def at_margin(code: str) -> str:
    """Code written inside a test, at the margin."""
    return "\n".join(line[4:] for line in code.split("\n"))


def test_time_that_was_wrongly_taken_for_ours_stops_no_clock(tmp_path: Path) -> None:
    """An interruption while we observed is no CPU time: what the program does afterwards counts all the same."""
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
