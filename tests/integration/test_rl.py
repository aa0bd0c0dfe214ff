"""`presim rl` as a user calls it: a composed training side and simulated engines of one small model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import presim
from presim.cli import main
from presim.evaluation.options import ClusterOptions

pytestmark = [pytest.mark.torch_cuda]
WORDS = "rl qwen3-0.6b --gpu h100-sxm --nodes 1 --prompts 16 --samples 8 --response 400~0.8"
ASYNCHRONOUS = "--placement separate --rollout-gpus 4 --staleness 2 --partial --steps 5"


def test_a_colocated_step_is_written_as_json_and_is_the_same_in_python(tmp_path: Path) -> None:
    path, page = tmp_path / "step.json", tmp_path / "step.html"
    assert main.run([*WORDS.split(), "--json", str(path), "--html", str(page), "-q"]) == 0
    content = json.loads(path.read_text())
    phases = {phase["phase"]: phase["seconds"] for phase in content["phases"]}
    assert sum(phases.values()) == pytest.approx(content["figures"]["step_time_s"])
    assert phases["old log-probabilities"] == phases["reference log-probabilities"] < phases["update"]
    assert all(sum(memory["parts"].values()) <= memory["capacity_bytes"] for memory in content["memory"])
    assert "Pools over time" in page.read_text()
    answer = presim.rl(
        "qwen3-0.6b", cluster=ClusterOptions(gpu="h100-sxm", nodes=1), prompts=16, samples=8, response="400~0.8"
    )
    assert answer.figures.step_time_s == content["figures"]["step_time_s"]


def test_separate_pools_run_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*WORDS.split(), *ASYNCHRONOUS.split()]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 GPUs train, 4 generate, at most 2 steps off-policy, partial rollouts" in said
    assert "Staleness 2.00 steps on average, 2 at most" in said


def test_a_search_shows_the_fastest_placement(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    assert main.run([*WORDS.split(), "--search", "--json", str(path), "-q"]) == 0
    content = json.loads(path.read_text())
    listed = content["alternatives"]
    assert len(listed) == 16
    assert content["figures"]["step_time_s"] in [alternative["step_time_s"] for alternative in listed]
    unseen = [alternative for alternative in listed if alternative["step_time_s"] is None]
    assert all(alternative["refusal"] or alternative["estimate_s"] for alternative in unseen)


@pytest.mark.long
def test_knobs_of_both_sides_vary(tmp_path: Path) -> None:
    path, written = tmp_path / "step.json", tmp_path / "best.txt"
    vary = "--vary tp=1,2 --vary rollout-tp=1,2 --vary staleness=0,1p --vary rollout-gpus=4"
    assert (
        main.run(
            [*WORDS.split(), "--search", *vary.split(), "--json", str(path), "--write", "verl", str(written), "-q"]
        )
        == 0
    )
    listed = json.loads(path.read_text())["alternatives"]
    assert len(listed) == 2 * 2 * (1 + 2)
    assert {alternative["knobs"]["tp"] for alternative in listed} == {1, 2}
    assert "actor_rollout_ref.rollout.tensor_model_parallel_size=" in written.read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("rl qwen3-0.6b --gpu h100-sxm", "how long responses are decides the step; add --response, e.g. "),
        ("rl qwen3-0.6b --gpu h100-sxm --response 10 a=1", "'a=1' overrides a recipe; add --from FRAMEWORK FILE"),
        ("rl --gpu h100-sxm --response 10", "no model is named; give one, e.g. presim rl qwen3-8b"),
        ("rl a b --gpu h100-sxm --response 10", "2 models, a and b; give one"),
        ("rl a --gpu h100-sxm --response 10 --offload all", "--offload takes parameters, optimizer, reference, or "),
        ("rl a --gpu h100-sxm --response 10 --fusions all", "--fusions takes norm, rotary, activation, several with "),
        (
            "rl --from spoon a --gpu h100-sxm",
            "no recipes of 'spoon' are read; there are verl, nemo-rl, trl, slime, openrlhf",
        ),
    ],
)
def test_bad_input_ends_in_a_sentence(words: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words.split()) == 2
    assert f"presim: {sentence}" in capsys.readouterr().err
