"""Worker processes that predict cases."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from presim.studies.validation.case_workers import solve_all
from presim.studies.validation.cases import Case
from presim.studies.validation.runs import Providers
from support.killed_cases import REASON, KillingProvider

WORKER = """
import sys
from presim.studies.validation.runs import Providers
from presim.studies.validation.case_workers import _workers
if __name__ == "__main__":
    with _workers(Providers(()), None) as workers:
        print(workers._idle().process.pid, flush=True)
        sys.stdin.read()
"""


def test_workers_end_with_a_validation_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, str(tmp_path / "worker.py")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


def test_a_worker_that_dies_takes_no_other_case_with_it(tmp_path: Path) -> None:
    """Its case is predicted once more, alone and last, and has a reason if its worker dies again."""
    killed = {"a": "always", "b": "", "c": "once", "d": "", "e": "", "f": ""}
    cases = [Case({"id": name, "gpu": "h100-sxm", "killed": when}) for name, when in killed.items()]
    answers = list(solve_all(cases, Providers((KillingProvider(tmp_path),)), jobs=2))
    assert {case.id for case, _ in answers[-2:]} == {"a", "c"}
    reasons = {case.id: prediction.reason for case, prediction in answers}
    death = (
        "the run failed: the process that predicted it was killed by SIGKILL, and again when no other case ran "
        "beside it, so the machine may lack the memory for it"
    )
    assert reasons == {name: death if name == "a" else REASON for name in killed}
    assert len(answers) == len(cases)
