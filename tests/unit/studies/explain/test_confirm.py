"""Candidates that are captured on the real program, beside what composing says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from presim.composition.plan import Plan
from presim.errors import InputError
from presim.planner.trials.trial import Point
from presim.planner.trials.trial_messages import Reply
from presim.result.explanation import CapturedCandidates, Gain
from presim.studies.explain.confirm import (
    CaptureOptions,
    check,
    confirm,
    current_point,
    plan_candidates,
    request_of,
    varied_candidates,
)
from support.searching import figures

COMMAND = ("train.py", "--mbs={mbs}", "--compile={compile}")
PLAN = Plan(sequence=64, micro_batch=2)
GAIN = Gain("twice the micro-batch", "", "change", "micro_batch = 4", 1.5, -0.5, -0.6, -0.4, 1.333, 100, True)
FAILED = Reply(fate="failed", words="the script raised")


def confirmed(
    captures: CaptureOptions, replies: Sequence[Reply], plans: Sequence[tuple[Gain, Plan]] = ()
) -> CapturedCandidates:
    """With the replies in the order of the captures."""
    plan = PLAN if plans else None
    point = current_point(captures, plan)
    candidates = [*plan_candidates(plans, captures, plan), *varied_candidates(captures, point)]
    answers = iter(replies)

    def take(point: Point) -> tuple[str, Reply]:
        return "command", next(answers)

    return confirm(captures, request_of("model", captures, {}), point, candidates, lambda text: None, take)


def priced(step_time_s: float) -> Reply:
    return Reply(fate="priced", figures=figures(step_time_s))


def test_a_composed_plan_has_both_gains() -> None:
    other = msgspec.structs.replace(PLAN, micro_batch=4)
    captures = CaptureOptions(max_plans=1, command=("train.py", "{mbs}"))
    found = confirmed(captures, [priced(2.0), priced(1.6)], [(GAIN, other)])
    (row,) = found.rows
    assert (found.by, found.step_time_s) == ("command", 2.0)
    assert (row.composed_gain_s, row.composed_throughput_ratio) == (-0.5, 1.333)
    assert row.gain_s == pytest.approx(0.4)
    assert row.gain_low_s is not None
    assert row.gain_high_s is not None
    assert row.gain_low_s <= row.gain_s <= row.gain_high_s


def test_a_framework_that_chooses_attention_itself_is_asked_without_the_one_that_was_read() -> None:
    """A capture names the kernel that ran; the programs for accelerate and DeepSpeed take what PyTorch chooses."""
    plan, asked = msgspec.structs.replace(PLAN, attention="cudnn"), []

    def take(point: Point) -> tuple[str, Reply]:
        asked.append(point["attention"])
        return ("accelerate", priced(2.0)) if point["attention"] == "auto" else ("", FAILED)

    captures = CaptureOptions(max_plans=1)
    point = current_point(captures, plan)
    candidates = plan_candidates([(GAIN, msgspec.structs.replace(plan, micro_batch=4))], captures, plan)
    request = request_of("model", captures, {})
    found = confirm(captures, request, point, candidates, lambda text: None, take)
    assert asked == ["cudnn", "auto", "auto"]
    assert (found.by, found.step_time_s, len(found.rows)) == ("accelerate", 2.0, 1)
    with pytest.raises(InputError, match="the unchanged job cannot be captured again: the script raised"):
        confirm(captures, request, {**point, "attention": "auto"}, [], lambda text: None, lambda point: ("", FAILED))


def test_each_other_value_of_a_knob_is_captured_and_the_best_is_first() -> None:
    captures = CaptureOptions(vary=["mbs=1,2,4", "compile=off,on"], command=COMMAND)
    found = confirmed(captures, [priced(2.0), priced(1.9), FAILED, priced(1.0)])
    assert [row.change for row in found.rows] == ["compile on", "mbs 2", "mbs 4"]
    assert found.rows[-1].words == "the script raised"
    assert found.rows[-1].gain_s is None
    assert found.rows[0].throughput_ratio == pytest.approx(2.0)


def test_a_plan_that_does_not_fit_is_not_captured() -> None:
    misfit = msgspec.structs.replace(GAIN, fits=False)
    assert not plan_candidates([(misfit, PLAN)], CaptureOptions(max_plans=3), PLAN)


def test_plans_without_a_placeholder_are_not_captured() -> None:
    """It would be captured as the job already is."""
    wider = (GAIN, msgspec.structs.replace(PLAN, micro_batch=4))
    other = (GAIN, msgspec.structs.replace(PLAN, recompute="full"))
    found = plan_candidates([other, wider], CaptureOptions(max_plans=2, command=("train.py", "{mbs}")), PLAN)
    assert [one.changed for one in found] == [{"micro_batch": 4}]
    assert len(plan_candidates([other, wider], CaptureOptions(max_plans=2), PLAN)) == 2


def test_a_job_that_cannot_be_captured_is_an_error() -> None:
    with pytest.raises(
        InputError, match=r"^the unchanged job cannot be captured again: the script raised; correct the"
    ):
        confirmed(CaptureOptions(vary=["mbs=1,2"], command=("train.py", "{mbs}")), [FAILED])
    with pytest.raises(InputError, match=r"script raised; correct fields that were read wrongly from the capture with"):
        confirmed(CaptureOptions(max_plans=1), [FAILED], [(GAIN, PLAN)])


@pytest.mark.parametrize(
    ("captures", "model", "words"),
    [
        (
            CaptureOptions(command=("a.py",)),
            None,
            "a command after -- is captured only with --confirm K or --vary KNOB=V,V",
        ),
        (
            CaptureOptions(max_plans=2),
            None,
            "--confirm captures the best composed plans, so it needs the trained model",
        ),
        (CaptureOptions(vary=["mbs=1,2"]), "m", "--vary needs a command after --"),
        (CaptureOptions(vary=["mbs=1,2"], command=("a.py",)), None, r"mbs is varied, but the command has no \{mbs\}"),
    ],
)
def test_options_that_do_not_go_together_are_refused(captures: CaptureOptions, model: str | None, words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        check(captures, model)


def test_stored_captures_are_not_repeated(tmp_path: Path) -> None:
    """Failures are, as their cause may have gone."""
    path = tmp_path / "kept.json"
    captures = CaptureOptions(vary=["mbs=1,2,4"], command=("train.py", "{mbs}"), study=str(path))
    first = confirmed(captures, [priced(2.0), priced(1.9), FAILED])
    again = confirmed(captures, [priced(1.0)])
    assert first.rows[0] == again.rows[1]
    assert again.rows[0].gain_s == pytest.approx(1.0)
    assert len(json.loads(path.read_text())["captures"]) == 3


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other", "captures": []}'])
def test_other_files_are_refused_and_unchanged(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kept.json"
    path.write_text(text)
    captures = CaptureOptions(vary=["mbs=1,2"], command=("train.py", "{mbs}"), study=str(path))
    with pytest.raises(InputError, match=r"name another one with --study$"):
        confirmed(captures, [priced(2.0)])
    assert path.read_text() == text
