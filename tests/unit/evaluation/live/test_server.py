"""The emulated device's clock, events and synchronisations, with the simulation behind them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

from presim.capture.reading.log import read_log
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.live.clock import Clock
from presim.evaluation.live.questions import Ask, LiveQuestion
from presim.evaluation.live.server import LiveServer
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.schema import HostCall, Kind
from support import emulated

MEMORY = 1 << 30
CODE = """
import time
cudart = ctypes.CDLL("libcudart.so.13")
driver = ctypes.CDLL("libcuda.so.1")
device, host = ctypes.c_void_p(), ctypes.c_void_p()
check = lambda status: status == 0 or exit(f"CUDA error {status}")
check(cudart.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(1 << 30)))
check(cudart.cudaHostAlloc(ctypes.byref(host), ctypes.c_size_t(1 << 30), 0))
def event():
    handle = ctypes.c_void_p()
    check(cudart.cudaEventCreateWithFlags(ctypes.byref(handle), 0))
    return handle
def copy():  # to the device: some 20 ms
    check(cudart.cudaMemcpyAsync(device, host, ctypes.c_size_t(1 << 30), 1, None))
def elapsed(first, second):
    took = ctypes.c_float()
    status = cudart.cudaEventElapsedTime(ctypes.byref(took), first, second)
    return took.value / 1e3 if status == 0 else status
start, end = event(), event()
"""


def run(code: str, directory: Path, *, live: bool = True, host_time: bool = True) -> dict[str, object]:
    """What the code puts into ``results``."""
    (directory / "log").mkdir()
    cluster = choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=1)
    with LiveServer(cluster, Options.of(host_time=host_time), live=live) as server:
        variables = server.add(0, directory / "log")
        results = emulated.run(CODE + textwrap.dedent(code), directory, **variables).results
        server.check()
    return results


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESIM_ENGINE", "interpreted")


def test_all_clocks_show_what_the_device_took(tmp_path: Path) -> None:
    """A wait of 20 simulated ms passes on each of them, and is over at once."""
    results = run(
        """
        import datetime
        readings = {
            "time": time.time, "perf_counter": time.perf_counter, "monotonic": time.monotonic,
            "datetime": lambda: datetime.datetime.now().timestamp(),
            "boot": lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
            "raw": lambda: time.clock_gettime(time.CLOCK_MONOTONIC_RAW),
        }
        copy()
        before = {name: read() for name, read in readings.items()}
        cpu = time.process_time()
        check(cudart.cudaDeviceSynchronize())
        results |= {name: read() - before[name] for name, read in readings.items()}
        """,
        tmp_path,
    )
    assert len(results) == 6
    assert all(0.015 < took < 0.040 for took in results.values() if isinstance(took, float))


def test_events_measure_the_device(tmp_path: Path) -> None:
    """And are not ready before the host has waited as long."""
    results = run(
        """
        check(cudart.cudaEventRecord(start, None))
        before = time.perf_counter()  # the queries run beside the copy
        copy()
        check(cudart.cudaEventRecord(end, None))
        results["queries"] = [cudart.cudaEventQuery(end), cudart.cudaStreamQuery(None), driver.cuEventQuery(end)]
        results["early"] = elapsed(start, end)
        check(cudart.cudaEventSynchronize(end))
        results["host"] = time.perf_counter() - before
        results["late"] = elapsed(start, end)
        results["after"] = [cudart.cudaEventQuery(end), cudart.cudaStreamQuery(None)]
        """,
        tmp_path,
    )
    assert results["queries"] == [600, 600, 600]
    assert results["early"] == 600
    assert results["late"] == pytest.approx(results["host"], rel=0.05)
    assert 0.015 < float(str(results["late"])) < 0.040
    assert results["after"] == [0, 0]


def test_polling_an_event_ends(tmp_path: Path) -> None:
    """Asking again and again is waiting: it takes a few questions, and the simulated time it would have.

    More where other processes come in between, which looks like a look now and then; else ten thousand.
    """
    results = run(
        """
        copy()
        check(cudart.cudaEventRecord(end, None))
        before, polls = time.perf_counter(), 0
        while cudart.cudaEventQuery(end) == 600:
            polls += 1
        results |= {"polls": polls, "took": time.perf_counter() - before}
        """,
        tmp_path,
    )
    assert int(str(results["polls"])) < 2000
    assert 0.015 < float(str(results["took"])) < 0.040


def test_without_host_time_nothing_but_the_device_takes_time(tmp_path: Path) -> None:
    """Two runs show the same, whatever the host did."""
    code = """
    check(cudart.cudaDeviceSynchronize())
    before = time.perf_counter_ns()
    sum(range({})) and copy()
    check(cudart.cudaDeviceSynchronize())
    results["took"] = time.perf_counter_ns() - before
    """
    took = []
    for busy in (10, 10**6):
        folder = tmp_path / str(busy)
        folder.mkdir()
        took.append(run(code.format(busy), folder, host_time=False)["took"])
    assert took[0] == took[1]


def test_event_times_are_simulated_without_a_live_clock_too(tmp_path: Path) -> None:
    """So that autotuners choose by them, and alike in every run; the host's clock is the machine's."""
    code = """
    check(cudart.cudaEventRecord(start, None))
    sum(range({})) and copy()
    check(cudart.cudaEventRecord(end, None))
    before = time.perf_counter()
    check(cudart.cudaEventSynchronize(end))
    waits = [time.perf_counter() - before]
    results["elapsed"] = elapsed(start, end)
    for _ in range(40):  # of many one is not disturbed, however busy the machine is
        copy()
        check(cudart.cudaEventRecord(end, None))
        before = time.perf_counter()
        check(cudart.cudaEventSynchronize(end))
        waits.append(time.perf_counter() - before)
    results["host"] = min(waits)
    """
    found = []
    for busy in (10, 10**6):
        folder = tmp_path / str(busy)
        folder.mkdir()
        results = run(code.format(busy), folder, live=False)
        found.append(results["elapsed"])
        assert float(str(results["host"])) < 0.015
    assert found[0] == found[1]
    assert 0.015 < float(str(found[0])) < 0.040


def test_a_child_process_has_the_machine_s_clock(tmp_path: Path) -> None:
    """A forked worker and a program of its own have no log, so nobody simulates them."""
    results = run(
        """
        import subprocess, sys
        copy()
        check(cudart.cudaDeviceSynchronize())
        reader, writer = os.pipe()
        if os.fork() == 0:
            begin = time.perf_counter()
            cudart.cudaEventQuery(end)
            os.write(writer, str(time.perf_counter() - begin).encode())
            os._exit(0)
        results["forked"] = os.read(reader, 100).decode()
        program = [sys.executable, "-c", "import time; print(time.time())"]
        results["program"] = subprocess.run(program, capture_output=True, text=True).stdout
        """,
        tmp_path,
    )
    assert float(str(results["forked"])) < 60  # it is not left waiting for an answer
    assert float(str(results["program"])) > 0


def test_an_error_of_the_simulation_reaches_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the process is not left waiting."""

    def fail(*args: object) -> None:
        raise InputError("cannot be priced")

    monkeypatch.setattr(Clock, "ask", fail)
    with pytest.raises(InputError, match="cannot be priced"):
        run("copy()\ncheck(cudart.cudaDeviceSynchronize())", tmp_path)


def test_sleep_passes_on_the_simulated_clock_and_not_in_fact(tmp_path: Path) -> None:
    """An hour of it, by every function that Python sleeps with; the log has it, for the simulation of the whole."""
    results = run(
        """
        import select, threading
        own = lambda: time.clock_gettime(0x70726573)
        check(cudart.cudaDeviceSynchronize())
        sleeps = {
            "sleep": lambda: time.sleep(600), "select": lambda: select.select([], [], [], 600),
            "poll": lambda: select.poll().poll(600_000), "event": lambda: threading.Event().wait(600),
            "lock": lambda: locked.acquire(timeout=600),
            "libc": lambda: ctypes.CDLL(None).sleep(600),
        }
        locked = threading.Lock()
        locked.acquire()
        begin = own()
        for name, sleep in sleeps.items():
            before = time.monotonic()
            sleep()
            results[name] = time.monotonic() - before
        results["really"] = own() - begin
        """,
        tmp_path,
    )
    really = float(str(results.pop("really")))
    assert really < 300  # of 3600, on a machine however busy
    assert len(results) == 6
    assert all(took == pytest.approx(600, abs=1) for took in results.values())
    log = read_log(tmp_path / "log")
    slept = log.records[log.records["kind"] == Kind.HOST_WAIT]["value"]
    assert slept.sum() / 1e9 == pytest.approx(3600, abs=1)


def test_a_sleep_is_as_long_as_what_happens_meanwhile(tmp_path: Path) -> None:
    """While another thread works, sleeping in a loop does not make time rush by."""
    results = run(
        """
        import threading
        check(cudart.cudaDeviceSynchronize())
        def work():
            begin = time.thread_time()
            while time.thread_time() - begin < 0.3:
                pass
        thread = threading.Thread(target=work)
        before = time.monotonic()
        thread.start()
        while thread.is_alive():
            time.sleep(0.01)
        results["took"] = time.monotonic() - before
        """,
        tmp_path,
    )
    assert (
        0.03 < float(str(results["took"])) < 20
    )  # sleeps that rush by make minutes. CPU time counts as the reference host's: less on a slow machine


def test_other_threads_wait_on_the_machine_s_clock_and_see_their_time_pass(tmp_path: Path) -> None:
    """A time-out of 50 ms comes after 50 ms, whether simulated time stands still or runs ahead."""
    results = run(
        """
        import queue, threading
        own = lambda: time.clock_gettime(0x70726573)
        check(cudart.cudaDeviceSynchronize())
        waits = []
        def poll():
            for _ in range(4):
                begin = own()
                try:
                    queue.Queue().get(timeout=0.05)
                except queue.Empty:
                    waits.append(own() - begin)
        thread = threading.Thread(target=poll)
        thread.start()
        copy()
        check(cudart.cudaDeviceSynchronize())
        thread.join()
        results["waits"] = waits
        """,
        tmp_path,
    )
    waits = results["waits"]
    assert isinstance(waits, list)
    assert len(waits) == 4
    assert all(0.04 < float(wait) < 60 for wait in waits)


def test_a_wait_that_is_answered_ends_then(tmp_path: Path) -> None:
    """With a time limit or without, another thread's answer is what ends it."""
    results = run(
        """
        import queue, threading
        check(cudart.cudaDeviceSynchronize())
        box = queue.Queue()
        def answer():
            time.sleep(0.02)
            box.put("answer")
        threading.Thread(target=answer).start()
        before = time.monotonic()
        results["got"] = box.get(timeout=3600)
        results["took"] = time.monotonic() - before
        """,
        tmp_path,
    )
    assert results["got"] == "answer"
    assert float(str(results["took"])) < 300  # of 3600


def test_sleep_counts_without_a_live_clock_too(tmp_path: Path) -> None:
    """The host of the cluster would sleep as well; other threads' sleep is none of the rank's."""
    run(
        """
        import threading
        time.sleep(0.01)
        thread = threading.Thread(target=lambda: time.sleep(0.02))
        thread.start()
        thread.join()
        """,
        tmp_path,
        live=False,
    )
    log = read_log(tmp_path / "log")
    slept = log.records[log.records["kind"] == Kind.HOST_WAIT]["value"]
    assert slept.sum() / 1e9 == pytest.approx(0.01, abs=0.001)


def test_queries_see_the_simulated_device_without_a_live_clock_too(tmp_path: Path) -> None:
    """A copy of 20 ms has not ended when it was just launched, but once the host has waited for it."""
    results = run(
        """
        copy()
        check(cudart.cudaEventRecord(end, None))
        results["before"] = [cudart.cudaEventQuery(end), cudart.cudaStreamQuery(None)]
        check(cudart.cudaEventSynchronize(end))
        results["after"] = [cudart.cudaEventQuery(end), cudart.cudaStreamQuery(None)]
        """,
        tmp_path,
        live=False,
    )
    assert results == {"before": [600, 600], "after": [0, 0]}


def test_a_host_that_sleeps_longer_than_its_device_works_sees_the_end(tmp_path: Path) -> None:
    """Sleep passes in the simulation as well, and an answer of before says nothing about after it."""
    results = run(
        """
        copy()
        check(cudart.cudaEventRecord(end, None))
        results["before"] = cudart.cudaEventQuery(end)
        time.sleep(0.06)
        results["after"] = cudart.cudaEventQuery(end)
        """,
        tmp_path,
        live=False,
    )
    assert results == {"before": 600, "after": 0}


@pytest.mark.parametrize("query", ["cudart.cudaEventQuery(end)", "cudart.cudaStreamQuery(None)"])
def test_polling_is_a_wait_without_a_live_clock_too(tmp_path: Path, query: str) -> None:
    """It ends after some queries, whatever the time of this machine."""
    results = run(
        f"""
        copy()
        check(cudart.cudaEventRecord(end, None))
        polls = 0
        while {query} == 600:
            polls += 1
        results["polls"] = polls
        """,
        tmp_path,
        live=False,
    )
    assert 0 < int(str(results["polls"])) < 2000
    waits = read_log(tmp_path / "log").records["kind"]
    assert np.isin(waits, [Kind.EVENT_SYNC, Kind.STREAM_SYNC]).any()


def test_queries_between_launches_are_no_wait(tmp_path: Path) -> None:
    """As an allocator's, which looks at the same event again whenever it needs memory."""
    results = run(
        """
        copy()
        check(cudart.cudaEventRecord(end, None))
        results["queries"] = []
        for _ in range(30):
            check(cudart.cudaEventRecord(start, None))
            results["queries"].append(cudart.cudaEventQuery(end))
        """,
        tmp_path,
        live=False,
    )
    assert results["queries"] == [600] * 30


@pytest.mark.parametrize("live", [False, True])
def test_few_queries_of_a_far_event_ask_the_launcher(
    tmp_path: Path, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer says how much work is still before it."""
    asked: list[LiveQuestion] = []
    ask = Clock.ask

    def record(clock: Clock, rank: int, question: LiveQuestion) -> None:
        asked.append(question)
        ask(clock, rank, question)

    monkeypatch.setattr(Clock, "ask", record)
    results = run(
        """
        for _ in range(20):
            copy()
        check(cudart.cudaEventRecord(end, None))
        results["queries"] = []
        for _ in range(100):
            check(cudart.cudaEventRecord(start, None))
            results["queries"].append(cudart.cudaEventQuery(end))
        """,
        tmp_path,
        live=live,
    )
    assert results["queries"] == [600] * 100
    assert sum(question.ask == Ask.EVENT for question in asked) < 10


def test_work_on_host_memory_is_logged(tmp_path: Path) -> None:
    """Its kind and its bytes; unlocking, as freeing on the device, waits for the device."""
    run(
        """
        block = ctypes.create_string_buffer(3 << 20)
        check(cudart.cudaHostRegister(block, ctypes.c_size_t(3 << 20), 0))
        check(cudart.cudaHostUnregister(block))
        check(cudart.cudaFreeHost(host))
        check(cudart.cudaFree(device))
        """,
        tmp_path,
        live=False,
    )
    records = read_log(tmp_path / "log").records
    calls = records[records["kind"] == Kind.HOST_CALL]
    assert list(zip(calls["object"].tolist(), calls["value"].tolist(), strict=True)) == [
        (HostCall.LOCK, 1 << 30),
        (HostCall.LOCK, 3 << 20),
        (HostCall.UNLOCK, 3 << 20),
        (HostCall.UNLOCK, 1 << 30),
    ]
    assert int((records["kind"] == Kind.DEVICE_SYNC).sum()) == 3


def test_the_live_clock_shows_what_locking_pages_takes(tmp_path: Path) -> None:
    """Three milliseconds for 64 MiB, and a quarter of it to unlock them."""
    results = run(
        """
        check(cudart.cudaDeviceSynchronize())
        before = time.perf_counter()
        check(cudart.cudaHostAlloc(ctypes.byref(host), ctypes.c_size_t(64 << 20), 0))
        results["lock"] = time.perf_counter() - before
        check(cudart.cudaFreeHost(host))
        results["both"] = time.perf_counter() - before
        """,
        tmp_path,
    )
    assert 0.0028 < float(str(results["lock"])) < 0.02
    assert float(str(results["both"])) > 0.0035
