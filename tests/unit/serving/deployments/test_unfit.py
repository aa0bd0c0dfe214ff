"""A model that no plan holds: by how much the nearest misses, and remedies that hold it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.cli import main
from presim.serving.deployments.deployment_search import Space
from presim.serving.deployments.unfit import misfit
from presim.serving.model_lookup import find

CASES = [  # model, GPU, most GPUs, tokens of a request
    ("llama3-70b", "l4", 2, 1280),
    ("deepseek-v3", "h100-sxm", 8, 4096),
    ("qwen3-32b", "t4", 1, 512),
    ("llama3-8b", "l4", 1, 130_000),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_the_nearest_lacks_memory_and_the_remedies_do_not(case: tuple[str, str, int, int]) -> None:
    name, gpu, gpus, longest = case
    model, space = find(name), Space((gpu,), most_gpus=gpus)
    lacking = misfit(model, space, longest)
    assert lacking is not None
    assert lacking.nearest.missing_bytes > 0
    assert lacking.remedies
    for remedy in lacking.remedies:
        words = remedy.split()
        option, value = words[words.index(next(word for word in words if word.startswith("--"))) :][:2]
        changed = {
            "--max-gpus": Space(
                (gpu,), tps=(1, 2, 4, 8), pps=(1, 2, 4, 8), most_gpus=int(value) if value.isdigit() else 0
            ),
            "--weights": Space((gpu,), most_gpus=gpus, weights=(value,)),  # type: ignore[arg-type]
            "--gpu": Space((value,), most_gpus=gpus),
        }[option]
        assert misfit(model, changed, longest) is None, remedy


def test_a_model_that_has_room_has_no_misfit() -> None:
    assert misfit(find("llama3-8b"), Space(("h100-sxm",), most_gpus=1), 4096) is None


def test_no_room_ends_with_four_and_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--json", str(tmp_path / "answer.json"), "--csv", str(tmp_path / "plans.csv")]
    files += ["--html", str(tmp_path / "page.html")]
    assert main.run(["deploy", "llama3-70b", "--gpu", "l4", "--max-gpus", "1", *files]) == 4
    said = capsys.readouterr().out
    assert said.startswith("No plan holds llama3-70b and a request of 1,280 tokens; the nearest: 1 x l4 as TP1 ")
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert (answer["best"], answer["nearest"], answer["without_room"]["gpu"]) == (None, None, "l4")
    assert answer["without_room"]["missing_bytes"] > 0
    assert any(sentence.startswith("Another GPU: --gpu ") for sentence in answer["would_help"])
