"""Host time is CPU time without what disturbs it: what else a machine does makes little difference to a prediction."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from presim.options import RunOptions
from presim.pipeline import Evaluation
from presim.verbs import run_and_evaluate
from support.captured import EXAMPLES

pytestmark = [pytest.mark.torch_cuda, pytest.mark.slow]

SPIN = "print(flush=True)\nwhile True: pass"


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """That many processes that use a core each."""
    running = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def capture() -> Evaluation:
    script = str(EXAMPLES / "llama_fsdp2.py")
    options = RunOptions(gpu="h100-sxm", world_size=8, rank=0)
    return run_and_evaluate([script], options, stdout=subprocess.DEVNULL)


def test_an_oversubscribed_machine_does_not_change_the_result() -> None:
    """Four times as many busy processes as cores: the wall clock is five times slower.

    A step that waits for its device is the same. The host's own time is not that of a quiet machine, whose caches and
    cores are not shared: up to twice was seen, while time that also counted the wait for a core would be five times.
    """
    pytest.importorskip("transformers")
    quiet = capture()
    with busy(4 * (os.cpu_count() or 1)):
        loaded = capture()
    assert quiet.result.step_time_s is not None
    assert loaded.result.step_time_s == pytest.approx(quiet.result.step_time_s, rel=0.01)
    spent = [int(item.priced.trace.columns["host_ns"].sum()) for item in (quiet, loaded)]
    assert spent[1] < 3 * spent[0]
