"""An interrupted search goes on where it ended, and gives the answer that it would have given."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.post_training import placement_search
from presim.post_training.build import Built
from presim.post_training.placement_search import search
from presim.post_training.placement_study import open_study
from presim.post_training.rl_answer import Alternative
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_request import RlRequest
from presim.post_training.rl_text import encode
from presim.system import interrupts
from support import rl_jobs

CLUSTER, REQUEST = choose_cluster(gpu="h100-sxm", world_size=4), RlRequest(model="qwen3-0.6b")
VARY = {"rollout_gpus": (2,), "staleness": (0,), "tp": (1, 2, 4)}


class _Builder:
    """Stands for `build_job`, counts its calls, and is interrupted at one of them."""

    def __init__(self, interrupted_at: int | None = None) -> None:
        self.calls, self.interrupted_at = 0, interrupted_at

    def __call__(self, candidate: RlRequest, *_: Any, **__: Any) -> Built:
        self.calls += 1
        if self.calls == self.interrupted_at:
            raise KeyboardInterrupt
        if candidate.tp == 4:
            raise InputError("no plan has so many ranks")
        job = rl_jobs.job(is_colocated=candidate.placement == "colocated", staleness=candidate.staleness, steps=4)
        token_s = {1: 1e-4, 2: 3e-5}[candidate.tp]
        plan = dataclasses.replace(job.trainer, logprob_tokens=4096 * candidate.tp)
        return Built(dataclasses.replace(job, trainer=plan), rl_jobs.prices(token_s), [], ())


def _search(monkeypatch: pytest.MonkeyPatch, builder: _Builder, study: Path | None) -> bytes:
    monkeypatch.setattr(placement_search, "build_job", builder)
    return encode(search(REQUEST, CLUSTER, vary=VARY, study=study)[0])


def test_a_resumed_search_answers_as_one_that_was_not_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, builder = tmp_path / "study", _Builder()
    complete = _search(monkeypatch, builder, None)
    interrupts_count = 0
    while b'"partial": true' in _search(monkeypatch, _Builder(3), study):
        assert interrupts.taken() is not None
        interrupts_count += 1
        assert interrupts_count < builder.calls
    assert interrupts_count > 1
    data = study.read_bytes()
    study.write_bytes(data[: data.rfind(b"\n", 0, -1) + 10])  # killed while it wrote a line
    resumed = _Builder()
    assert _search(monkeypatch, resumed, study) == complete
    assert resumed.calls < builder.calls
    again = _Builder()
    assert _search(monkeypatch, again, study) == complete
    assert again.calls <= 3  # those that are simulated whole


def test_an_interrupted_search_simulates_no_placement_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is that of two engines, with the GPUs and the prompts of the job."""
    placement_of = {job.placement.text: job for job in (_Builder()(REQUEST).job,)}
    engines = []

    def simulate_two(job: RlJob, *arguments: Any) -> Any:
        engines.append(job.replicas)
        if len(engines) > 1:
            raise KeyboardInterrupt
        return simulate(job, *arguments)

    monkeypatch.setattr(placement_search, "build_job", _Builder())
    monkeypatch.setattr(placement_search, "simulate", simulate_two)
    found, _, job = search(REQUEST, CLUSTER, 2.0, vary=VARY)
    assert interrupts.taken() is not None
    assert engines == [2, 2]
    assert found.partial
    assert job.placement.text in placement_of
    assert (found.prompts, sum(pool.gpus for pool in found.pools)) == (job.batch.prompts, job.placement.gpus)
    assert found.figures.money_per_thousand_steps == pytest.approx(
        2.0 * job.placement.gpus * found.figures.step_time_s / 3.6
    )
    assert "the fastest of them, on two of its engines" in found.notes[-1]


def test_an_interrupt_before_any_placement_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        _search(monkeypatch, _Builder(1), None)
    assert interrupts.taken() is not None


def test_studies_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    study = tmp_path / "study"
    with open_study(study, "a") as store:
        store.add(Alternative(placement="tp 1", refusal="does not fit"))
        with pytest.raises(InputError, match="another search is using the study"), open_study(study, "a"):
            pass
    with pytest.raises(InputError, match="was made for another job, cluster or --vary"), open_study(study, "b"):
        pass
    with open_study(study, "a") as store:
        assert store.find("tp 1") == Alternative(placement="tp 1", refusal="does not fit")
    study.write_bytes(study.read_bytes() + b"{}\n")
    with pytest.raises(InputError, match=r"a placement of the study .* is damaged"), open_study(study, "a"):
        pass
    study.write_text("a note\n")
    with pytest.raises(InputError, match="is no study of a search"), open_study(study, "a"):
        pass
    assert study.read_text() == "a note\n"
