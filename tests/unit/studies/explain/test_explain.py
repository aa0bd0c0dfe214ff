"""`presim explain`: each candidate is simulated, and what is listed can be shown again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import msgspec
import pytest

from presim.cli import main
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.options import EvaluationOptions
from presim.hardware.cluster_choice import choose_cluster
from presim.studies import saved_jobs
from presim.studies.explain.candidates import neighbour_plans, simulation_candidates
from presim.studies.explain.explain import gain
from presim.trace import job_store
from presim.trace.job import Job
from support import workloads

CLUSTER = choose_cluster(gpu="h100-sxm", world_size=128)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("explain") / "job"
    job_store.save([workloads.llama_8b(steps=2, layers=3)], directory)
    return directory


def called(capsysbinary: pytest.CaptureFixture[bytes], *args: object) -> tuple[int, str, str]:
    code = main.run([str(arg) for arg in args])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def test_the_options_of_a_candidate_show_its_step_time(saved: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """What is listed is what `presim simulate` says with these options."""
    code, out, _ = called(capsysbinary, "explain", saved, "--json", "-")
    assert code == 0
    answer = json.loads(out)
    assert answer["gains"]
    for row in answer["gains"][:3]:
        _, simulated, _ = called(capsysbinary, "simulate", saved, "-q", "--json", "-", *shlex.split(row["options"]))
        assert json.loads(simulated)["step_time_s"] == row["step_time_s"]
        assert row["step_time_s"] + row["gain_s"] == pytest.approx(answer["step_time_s"])
    rates = [row["throughput_ratio"] for row in answer["gains"]]
    assert rates == sorted(rates, reverse=True)


def test_a_candidate_that_is_not_possible_takes_no_other_with_it(
    saved: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed with its reason."""
    evaluated = saved_jobs.evaluate_saved
    scaled_ops: list[tuple[str, ...]] = []

    def evaluate_all_but_one(directory: Path, options: EvaluationOptions) -> Evaluation:
        if options.scale_op and options.scale_op == (scaled_ops or [options.scale_op])[0]:
            scaled_ops.append(options.scale_op)
            raise InputError("it has no such operators")
        return evaluated(directory, options)

    monkeypatch.setattr(saved_jobs, "evaluate_saved", evaluate_all_but_one)
    code, out, _ = called(capsysbinary, "explain", saved, "--json", "-")
    answer = json.loads(out)
    assert code == 0
    assert answer["gains"]
    (reason,) = answer["refused"]
    assert reason.endswith(": it has no such operators")
    assert f"not possible: {reason}" in " ".join(called(capsysbinary, "explain", saved)[1].split())


def test_the_critical_path_covers_the_step(saved: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    _, out, _ = called(capsysbinary, "explain", saved, "--json", "-")
    answer = json.loads(out)
    path = answer["critical_path"]
    assert sum(piece["seconds"] for piece in path["by_kind"]) == pytest.approx(path["length_s"])
    assert path["length_s"] == pytest.approx(answer["step_time_s"], rel=0.05)


def test_parts_without_time_give_no_candidate() -> None:
    """A job whose host and network take no time is not told to hurry them."""
    result = evaluate(Job.of(workloads.llama_8b(steps=2, layers=3)), CLUSTER).result
    time = msgspec.structs.replace(
        result.time, host_bound_s=0.0, idle_s=0.0, exposed_communication_s=0.0, contention_s=0.0
    )
    quiet = msgspec.structs.replace(result, time=time)
    assert not [
        one.description
        for one in simulation_candidates(quiet, CLUSTER, EvaluationOptions())
        if "host" in one.description or "bandwidth" in one.description or "contention" in one.description
    ]


def test_neighbours_of_a_plan_differ_in_one_thing() -> None:
    plan = Plan(sequence=4096, micro_batch=2, tensor=2)
    changed = [neighbour.plan for neighbour in neighbour_plans(plan, CLUSTER)]
    assert plan not in changed
    assert {each.tensor for each in changed} == {1, 2, 4}
    assert {each.micro_batch for each in changed} == {1, 2, 4}
    assert {each.recompute for each in changed} == {"none", "full"}


def test_a_slower_change_has_a_negative_gain() -> None:
    result = evaluate(Job.of(workloads.llama_8b(steps=2, layers=3)), CLUSTER).result
    slower = msgspec.structs.replace(result, step_time_s=2 * (result.step_time_s or 0))
    row = gain(result, slower, "a", "b", "change", "")
    assert row.gain_s == pytest.approx(-(result.step_time_s or 0))
    assert row.gain_low_s <= row.gain_s <= row.gain_high_s


def test_a_folder_without_a_job_is_reported_in_a_sentence(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, out, err = called(capsysbinary, "explain", tmp_path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
