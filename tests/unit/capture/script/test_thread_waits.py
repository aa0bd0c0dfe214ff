"""Measuring how long the main thread waits for threads and processes of the script."""

from __future__ import annotations

import inspect
import itertools
import os
import queue
import runpy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from presim.capture.script import current_line, thread_waits
from presim.capture.script.clock_reads import LIVE
from presim.capture.script.package_folders import PACKAGE_FOLDERS
from presim.capture.script.thread_waits import WATCHED, ThreadWaits

MS = 1_000_000
SCRIPT = """
import multiprocessing, queue, threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

class OwnCondition(threading.Condition):
    def wait(self, timeout=None):
        return super().wait(timeout)  # Condition.wait

here, there = multiprocessing.Pipe()
there.send(1)
begin = threading.Event()
pool = ThreadPoolExecutor(1)
future = pool.submit(begin.wait)
with suppress(queue.Empty):
    queue.Queue().get(timeout=0.001)  # Queue.get
full = queue.Queue(1)
full.put(1)
full.get()
full.put(1)
with suppress(queue.Full):
    full.put(1, timeout=0.001)  # Queue.put
with suppress(queue.Empty):
    queue.SimpleQueue().get(timeout=0)  # SimpleQueue.get
with suppress(queue.Empty):
    multiprocessing.Queue().get(timeout=0.001)  # Queue.get
condition = OwnCondition()
with condition:
    condition.wait(0)
threading.Event().wait(0)  # Event.wait
with suppress(TimeoutError):
    future.result(0)  # Future.result
here.poll(1)  # _ConnectionBase.poll
here.recv()  # _ConnectionBase.recv
begin.set()
thread = threading.Thread(target=int)
thread.start(); thread.join()  # Thread.join
"""


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> ThreadWaits:
    """Installed until the test ends, on a clock that advances by a millisecond whenever it is read."""
    for owner, name in (*WATCHED, (queue, "SimpleQueue")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    clock = itertools.count(0, MS)
    monkeypatch.setattr(thread_waits, "now_ns", lambda: next(clock))
    monkeypatch.setattr(time, "thread_time_ns", lambda: 0)
    monkeypatch.setattr(os, "register_at_fork", lambda **callbacks: None)
    monkeypatch.delenv(LIVE, raising=False)
    observer = ThreadWaits()
    observer.install()
    return observer


def calls(waits: ThreadWaits) -> set[str]:
    """What has waited so far, as ``Queue.get at script.py:12``."""
    return {line for _, _, line in waits._waits}


def test_the_call_and_line_of_each_wait_are_named(waits: ThreadWaits, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    runpy.run_path(str(script))
    lines = [(number, line.partition("  # ")[2]) for number, line in enumerate(SCRIPT.splitlines(), 1)]
    expected = {f"{call} at {script}:{number}" for number, call in lines if call}
    starts = {line for line in calls(waits) if line.startswith(("Thread.start", "ThreadPoolExecutor.submit"))}
    assert calls(waits) - starts == expected  # to start a thread is a short wait, too


def test_waits_of_pytorch_presim_and_other_threads_do_not_count(waits: ThreadWaits) -> None:
    for folder in (f"{PACKAGE_FOLDERS[0]}torch/", f"{current_line.PRESIM_DIR}/"):
        exec(compile("import threading; threading.Event().wait(0)", f"{folder}dataloader.py", "exec"))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(threading.Event().wait, 0)
    assert not {line for line in calls(waits) if line.startswith("Event.wait")}


def test_the_note_has_the_mean_wait_of_a_step_after_the_first(waits: ThreadWaits) -> None:
    waits._waits = [(50, 900 * MS, "Queue.get at a.py:1")]  # in the first step
    waits._waits += [(100 + step, 5 * MS, f"Queue.get at a.py:{step}") for step in range(4)]
    waits._waits += [(110, 5 * MS, "Event.wait at b.py:2")]
    waits._waits += [(200, 900 * MS, "Thread.join at a.py:9")]  # behind the last
    assert waits.notes([100, 150, 200]) == [
        "The script waited 12.5 ms a step for threads or processes of its own (Queue.get at a.py:0, Queue.get at "
        "a.py:1, Queue.get at a.py:2 and 2 more): this time is not simulated. On the cluster, a step takes at least as "
        "long as they need for it."
    ]


@pytest.mark.parametrize(("wait_ns", "is_noted"), [(MS // 2, False), (MS * 9 // 10, True), (2 * MS, True)])
def test_waits_below_a_millisecond_and_a_tenth_of_a_step_are_no_matter(
    waits: ThreadWaits, wait_ns: int, is_noted: bool
) -> None:
    waits._waits = [(10 * MS, wait_ns, "Queue.get at a.py:1")]
    assert bool(waits.notes([8 * MS, 16 * MS])) is is_noted
    assert bool(waits.notes([8 * MS, 30 * MS])) is (wait_ns > MS)
    assert not waits.notes([8 * MS])


def test_functions_keep_their_names_and_signatures(waits: ThreadWaits) -> None:
    assert list(inspect.signature(threading.Condition.wait).parameters) == ["self", "timeout"]
    assert list(inspect.signature(threading.Thread.join).parameters) == ["self", "timeout"]
    assert (queue.SimpleQueue.__name__, queue.SimpleQueue.get.__name__) == ("SimpleQueue", "get")
    with pytest.raises(queue.Empty):
        queue.SimpleQueue().get(block=False)


def test_nothing_is_watched_if_clocks_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIVE, "1.0 0 0 0 0 0")
    before = [getattr(owner, name) for owner, name in WATCHED]
    ThreadWaits().install()
    assert [getattr(owner, name) for owner, name in WATCHED] == before


def test_a_process_that_the_script_forks_watches_nothing(waits: ThreadWaits) -> None:
    waits._end()
    threading.Event().wait(0)
    assert not calls(waits)
