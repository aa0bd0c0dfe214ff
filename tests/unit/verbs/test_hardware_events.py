"""A run whose hardware fails for a while takes as long as follows by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.evaluation.options import SimulateOptions
from presim.evaluation.what_if import Changes
from presim.trace import job_store
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest, Phase
from presim.trace.signatures import Collective, Gemm
from presim.verbs.hardware_events import EventFile, read_events, run_under_events
from presim.verbs.simulate import evaluate_saved

STEP_S = 2.0


def step_time(changes: Changes) -> float:
    """A step of arithmetic only: the slowest rank sets it."""
    return STEP_S / min(changes.stragglers.values(), default=1.0) * (1.5 if changes.failed else 1.0)


def events(folder: Path, text: str) -> EventFile:
    path = folder / "events.toml"
    path.write_text(text)
    return read_events(path)


@pytest.mark.parametrize(
    ("text", "total_s"),
    [
        ("[[events]]\nstraggler='rank3=0.5'", 400.0),  # all the time, at half of the speed
        ("[[events]]\nstraggler='rank3=0.5'\nfrom_s=50\nfor_s=20", 210.0),  # 20 s do the work of 10
        ("[[events]]\nstraggler='node0=0.5'\nfrom_step=10\nfor_s=20", 210.0),
        ("[[events]]\nstraggler='node0=0.5'\nfrom_step=90", 220.0),  # ten steps of 4 s
        ("[[events]]\nfail='leaf0-spine0'\nfor_s=1\nevery_s=10", 207.0),  # 9 s + 1 / 1.5 s of work each 10 s
        (
            "[[events]]\nstraggler='rank0=0.5'\nfrom_s=10\nfor_s=30\n[[events]]\nfail='leaf0-spine0'\nfrom_s=20\nfor_s=10",
            200 + 10 + 20 / 3,  # 20 s at half the rate, 10 s at a third
        ),
        ("", 200.0),
        ("[[events]]\nstraggler='rank0=0.5'\nfrom_s=1000", 200.0),
    ],
)
def test_the_time_of_a_run_is_the_sum_of_its_stretches(tmp_path: Path, text: str, total_s: float) -> None:
    head = "steps = 100\n" if text else "steps = 100\nevents = []\n"
    run = run_under_events(events(tmp_path, head + text), step_time)
    assert run.healthy_s == 200.0
    assert run.total_s == pytest.approx(total_s, rel=1e-6)
    assert sum(state.steps for state in run.states) == pytest.approx(100)
    assert sum(state.seconds for state in run.states) == pytest.approx(run.total_s)


@given(speed=st.floats(0.05, 1.0), begin=st.floats(0, 150), length=st.floats(0.01, 100))
def test_a_slow_stretch_costs_what_it_did_not_do(speed: float, begin: float, length: float) -> None:
    """A stretch of L seconds at speed v within the run delays it by L (1 - v)."""
    from presim.verbs.hardware_events import _Event

    file = EventFile(1000, (_Event(straggler=f"rank0={speed}", from_s=begin, for_s=length),))
    run = run_under_events(file, step_time)
    assert run.total_s == pytest.approx(2000 + length * (1 - speed), rel=1e-9)


def saved(folder: Path) -> Path:
    group = Group("world", tuple(range(16)), 16)
    build = TraceBuilder(Manifest(world_size=16, rank=0, gpu="h100-sxm", gpus_per_node=8, script="", groups=(group,)))
    for _ in range(3):
        build.work(Gemm(m=8192, n=8192, k=8192, batch=1, dtype="bfloat16"), phase=Phase.FORWARD)
        build.work(Collective("all_reduce", 1 << 24, "float32", group=0), phase=Phase.BACKWARD)
        build.step()
    job_store.save([build.trace()], folder / "job", stands_for={0: range(1, 16)})
    return folder / "job"


def test_a_saved_job_runs_under_a_hot_node(tmp_path: Path) -> None:
    """The result names the run, and its steps are those of --straggler."""
    path = tmp_path / "events.toml"
    path.write_text("steps = 10\n[[events]]\nstraggler = 'node1=0.5'\nfrom_step = 5\n")
    job = saved(tmp_path)
    result = evaluate_saved(job, SimulateOptions(events=path)).result
    slow = evaluate_saved(job, SimulateOptions(stragglers=("node1=0.5",))).result.step_time_s
    assert result.step_time_s is not None
    assert slow is not None
    assert result.hardware_events is not None
    assert result.hardware_events.total_s == pytest.approx(5 * result.step_time_s + 5 * slow)
    assert result.notes[0].startswith("10 steps take ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[events]]\nfrom_s = 1", "event 1 has 0 of straggler, fail and bandwidth; give one"),
        ("[[events]]\nfail='a'\nfrom_s=1\nfrom_step=1", "event 1 has from_s and from_step; leave one of them out"),
        ("[[events]]\nfail='a'\nfor_s=2\nevery_s=1", "event 1 repeats every 1 s; give a shorter for_s"),
        ("[[events]]\nstraggler='gpu3=0.5'", "--straggler takes node3=0.8 or rank17=0.8; got the name 'gpu3'"),
        ("[[events]]\nspeed=2", "is no file of hardware events: Object contains unknown field `speed`"),
        ("[[events]]\nfail='a'\nfor_s=0", "is no file of hardware events: Expected `float` >= 0.001, not 0"),
    ],
)
def test_an_event_that_says_too_little_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        events(tmp_path, "steps = 100\n" + text)
    assert message in str(error.value)


def test_a_run_of_too_many_stretches_is_refused(tmp_path: Path) -> None:
    file = events(tmp_path, "steps = 1000000\n[[events]]\nfail='a'\nfor_s=0.001\nevery_s=0.01\n")
    with pytest.raises(InputError, match="change the hardware more than 100,000 times in 1,000,000 steps"):
        run_under_events(file, step_time)
