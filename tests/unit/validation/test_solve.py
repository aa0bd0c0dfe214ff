"""Worker processes that predict cases."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

POOL = """
import os, sys
from presim.validation.runs import Providers
from presim.validation.solve import _pool
with _pool(Providers(()), 1) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    sys.stdin.read()
"""


def test_workers_end_with_a_validation_that_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", POOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    worker = os.pidfd_open(int(process.stdout.readline()))
    process.kill()
    process.wait()  # its output stays open for as long as the worker has it
    poll = select.poll()
    poll.register(worker, select.POLLIN)
    has_ended = bool(poll.poll(10_000))
    if not has_ended:
        signal.pidfd_send_signal(worker, signal.SIGKILL)
    os.close(worker)
    process.communicate()
    assert has_ended, "the worker lives on"
