"""What becomes of a case on its way to a prediction, with captures that are handed in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from golden.scenarios import kernel
from presim.engine.calls import CallCosts
from presim.engine.simulation_options import Options
from presim.errors import CaptureError
from presim.hardware import catalogue
from presim.studies.validation.case_workers import solve_all
from presim.studies.validation.cases import Case
from presim.studies.validation.results import Prediction
from presim.studies.validation.runs import Providers
from presim.studies.validation.solve import solve
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Manifest, Trace
from presim.units import GIB
from presim_study.captures import Captures
from presim_study.plan import Plan, Repeats
from presim_study.planners import plan
from presim_study.provider import PublishedRuns
from presim_study.runs import simulate, step_s
from support import workloads

ROW = {
    "id": "x", "framework": "torchtitan", "gpu": "H100", "n_gpus": "128", "gpus_per_node": "8", "n_layers": "3",
    "hidden": "4096", "ffn": "14336", "n_heads": "32", "vocab": "128256", "precision": "bf16", "seq_len": "8192",
    "micro_batch": "1", "global_batch": "128", "act_ckpt": "none", "step_time_s": "0.1",
}  # fmt: skip


class Kept(Captures):
    """Hands out traces, or raises an error."""

    def __init__(self, *outcomes: Trace | Exception) -> None:
        super().__init__(Path("recipes"), Path("nowhere"))
        self.outcomes = outcomes

    def traces(self, plan: Plan) -> list[Trace]:
        for outcome in self.outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return [outcome for outcome in self.outcomes if isinstance(outcome, Trace)]


def providers(captures: Captures) -> Providers:
    return Providers((PublishedRuns(captures),))


def solved(case: Case, captures: Captures, options: Options | None = None) -> Prediction:
    return solve(case, providers(captures), options)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return workloads.llama_8b(steps=2, layers=3)


def test_a_capture_becomes_a_step_time_with_its_interval(trace: Trace) -> None:
    prediction = solved(Case(ROW), Kept(trace))
    assert prediction.reason == ""
    assert prediction.outcome == "ok"
    interval = (prediction.low_step_time_s, prediction.step_time_s, prediction.high_step_time_s)
    assert None not in interval
    assert list(interval) == sorted(interval)


def test_what_further_micro_batches_add_is_taken_from_two_steps(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight micro-batches from steps of two and four; the interval grows alike."""
    plain = solved(Case(ROW), Kept(workloads.llama_8b(steps=3, layers=3)))
    kept = Kept(workloads.llama_8b(steps=3, layers=3))
    planned = dataclasses.replace(plan(Case(ROW)), repeats=Repeats(2, 4, 8))
    monkeypatch.setattr("presim_study.provider.plan", lambda case: planned)
    found = solved(Case(ROW), kept)
    assert Repeats(2, 4, 8).step_time(3.0, 5.0) == 9.0
    assert Repeats(2, 4, 8).step_time(3.0, 5.0, busy_s=2.5) == 10.5  # no stage works faster than its kernels
    assert None not in (found.step_time_s, plain.step_time_s, found.low_step_time_s, plain.low_step_time_s)
    assert found.low_step_time_s / found.step_time_s == pytest.approx(plain.low_step_time_s / plain.step_time_s)  # type: ignore[operator]
    assert found.step_time_s == pytest.approx(plain.step_time_s, rel=0.05)  # all of its steps are alike


def test_a_time_logged_early_is_the_mean_of_the_steps_since_the_first(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(Case(ROW))
    found = simulate(planned, [trace])
    steady, times = found.result.step_time_s, found.result.steps.times_s
    assert steady is not None
    early = step_s(dataclasses.replace(planned, logged_at=10), [trace], found)
    assert early == pytest.approx((times[1] + 8 * steady) / 9)
    assert step_s(planned, [trace], found) == steady


@pytest.mark.parametrize(
    ("said", "stage"), [("rank 70", 2), ("rank 31", 0), ("rank 32", 1), ("last rank", 2), ("max over ranks", 1)]
)
def test_memory_is_that_of_the_rank_that_was_measured(said: str, stage: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three stages of 32 ranks, the second one fullest."""
    planned = dataclasses.replace(plan(Case(ROW)), ranks=(0, 32, 64))
    sizes = {0: 20, 32: 30, 64: 10}
    monkeypatch.setattr("presim_study.provider.plan", lambda case: planned)
    kept = Kept(*(holding(rank, size * GIB) for rank, size in sizes.items()))
    assert solved(Case({**ROW, "rank_or_stage": said}), kept).peak_mem_gib == list(sizes.values())[stage]


def holding(rank: int, size: int) -> Trace:
    """A rank that has a block of that many bytes."""
    build = TraceBuilder(Manifest(world_size=128, rank=rank, gpu="h100-sxm", gpus_per_node=8, script=""))
    build.segment(1 << 40, size)
    build.alloc(1 << 40, size)
    build.work(kernel(1_000))
    build.step()
    return build.trace()


def test_hosts_of_a_graph_launch_nothing(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(Case(ROW))
    eager = solved(Case(ROW), Kept(trace)).step_time_s
    monkeypatch.setattr("presim_study.provider.plan", lambda case: dataclasses.replace(planned, graphs=True))
    graph = solved(Case(ROW), Kept(trace), Options(calls=CallCosts(launch=2_000_000))).step_time_s
    assert eager is not None
    assert graph is not None
    assert graph <= eager


def test_what_cannot_be_built_is_a_reason_not_an_error(trace: Trace) -> None:
    assert solved(Case({**ROW, "hidden": ""}), Kept(trace)).reason == "hidden is empty"


def test_a_capture_that_fails_is_a_reason_of_one_line(trace: Trace) -> None:
    prediction = solved(Case(ROW), Kept(CaptureError("the script\nhad not ended")))
    assert prediction.reason == "the run failed: the script had not ended"


class Roomy(Kept):
    """Runs out of memory where a GPU has no more than the catalogue's."""

    def traces(self, plan: Plan) -> list[Trace]:
        (trace,) = super().traces(plan)
        if plan.cluster.gpu.memory_bytes > catalogue.gpu("h100-sxm").memory_bytes:
            return [trace]
        full = msgspec.structs.replace(trace.manifest, exit="out_of_memory", error="torch.OutOfMemoryError: full")
        return [dataclasses.replace(trace, manifest=full)]


def test_what_ran_and_does_not_fit_has_the_time_of_larger_gpus_and_stays_out_of_memory(trace: Trace) -> None:
    found, fits = solved(Case(ROW), Roomy(trace)), solved(Case(ROW), Kept(trace))
    assert found.outcome == "out_of_memory"
    assert found.step_time_s == fits.step_time_s
    assert found.peak_mem_gib == fits.peak_mem_gib
    assert found.reason == (
        "out of memory in the emulation: torch.OutOfMemoryError: full; "
        "time and memory are those of GPUs with 2 times the memory"
    )
    nobody_ran_it = solved(Case({**ROW, "step_time_s": ""}), Roomy(trace))
    assert (nobody_ran_it.outcome, nobody_ran_it.step_time_s) == ("out_of_memory", None)


def test_all_cases_are_answered(trace: Trace) -> None:
    cases = [Case(ROW), Case({**ROW, "id": "y", "gpu": ""})]
    answers = {case.id: prediction.reason for case, prediction in solve_all(cases, providers(Kept(trace)), jobs=1)}
    assert answers == {"x": "", "y": "gpu is empty"}


def test_a_case_without_framework_is_left_to_other_providers(trace: Trace) -> None:
    reason = solved(Case({**ROW, "framework": ""}), Kept(trace)).reason
    assert reason.startswith("the case names neither a command nor a saved job")
