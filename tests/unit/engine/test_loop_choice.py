"""Which loop runs: a process interprets until that has cost as much as the compiled loop would."""

from __future__ import annotations

import subprocess
import sys

import pytest

from presim.engine import loop_choice
from presim.engine.loop_choice import COMPILING_OPS, LOADING_OPS, InterpretedOps, is_compiled


@pytest.fixture(autouse=True)
def nothing_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has simulated nothing."""
    monkeypatch.delenv("PRESIM_ENGINE", raising=False)
    monkeypatch.setattr(InterpretedOps, "count", 0)


@pytest.mark.parametrize(("on_disk", "enough"), [(True, LOADING_OPS), (False, COMPILING_OPS)])
def test_a_loop_on_disk_is_used_sooner(on_disk: bool, enough: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_choice, "is_on_disk", lambda: on_disk)
    assert not is_compiled(None, enough - 1)
    assert is_compiled(None, 1)


def test_the_environment_and_the_caller_choose_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESIM_ENGINE", "interpreted")
    assert not is_compiled(None, 10**9)
    monkeypatch.setenv("PRESIM_ENGINE", "compiled")
    assert is_compiled(None, 0)
    assert not is_compiled(False, 0)


def test_a_compiled_loop_on_disk_runs_without_numba() -> None:
    script = (
        "import sys; from golden.scenarios import launch_bound; from presim.engine.compiled_loop import compiled_run; "
        "from presim.engine.simulate import simulate_job; compiled_run(); "
        "simulate_job(launch_bound(), compiled=True); print('numba' in sys.modules)"
    )
    environment_path = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", script]
    outputs = [
        subprocess.run(command, env=environment_path, capture_output=True, text=True, check=True).stdout
        for _ in range(2)  # the first may compile it
    ]
    assert outputs[1] == "False\n"
