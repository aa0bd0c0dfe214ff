"""`presim search` over a command extends captures of lower numbers, and a capture of the higher number is the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from presim.cli.main import run
from presim.errors import ExitCode

pytestmark = [pytest.mark.torch_cuda]
SCRIPTS = Path(__file__).parent / "scripts"
OPTIONS = ["search", "--gpu", "h100-sxm", "--host-time", "0", "--quiet", "--jobs", "1"]


def answer_of(tmp_path: Path, words: list[str]) -> dict[str, Any]:
    path = tmp_path / "answer.json"
    assert run([*OPTIONS, "--json", str(path), *words]) == ExitCode.STANDS
    answer: dict[str, Any] = json.loads(path.read_text())
    return answer


@pytest.mark.long
@pytest.mark.parametrize(
    ("knob", "values", "arguments"),
    [
        (
            "accum",
            "6,8,12",
            ["--world-size", "2", "--confirm", "3", "--", str(SCRIPTS / "accumulates.py"), "fsdp", "{accum}"],
        ),
        (
            "layers",
            "5,7,10",
            ["--world-size", "2", "--confirm", "3", "--", str(SCRIPTS / "layered.py"), "fsdp", "{layers}"],
        ),
        ("world_size", "4,8,16", ["--confirm", "3", "--", str(SCRIPTS / "layered.py"), "fsdp", "5"]),
        ("world_size", "4,6,8", ["--confirm", "3", "--", str(SCRIPTS / "one_stage_a_rank.py"), "24"]),
    ],
)
def test_the_highest_number_is_extended_as_a_capture_says(
    tmp_path: Path, knob: str, values: str, arguments: list[str]
) -> None:
    answer = answer_of(tmp_path, ["--vary", f"{knob}={values}", *arguments])
    sources = [trial["figures"]["source"] for trial in answer["trials"]]
    assert sources == ["captured", "captured", "extended"], answer["notes"]
    extended = answer["trials"][-1]
    (captured,) = [trial for trial in answer["confirmation"]["trials"] if trial["number"] == extended["number"]]
    assert extended["figures"]["step_time_s"] == pytest.approx(captured["figures"]["step_time_s"], rel=0.01)
    assert extended["figures"]["memory_bytes"] == pytest.approx(captured["figures"]["memory_bytes"], rel=0.03)
    assert any("were not captured but extended" in note for note in answer["notes"])


@pytest.mark.long
def test_a_knob_that_changes_the_work_is_captured_at_each_value_and_the_reason_is_told(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\nwidth = int(sys.argv[1])\nmodel = torch.nn.Linear(width, width).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters())\nfor _ in range(3):\n"
        "    for _ in range(8):\n"
        "        model(torch.randn(64, width, device='cuda')).square().mean().backward()\n    optimizer.step()\n"
    )
    answer = answer_of(tmp_path, ["--vary", "width=256,512,1024", "--", str(script), "{width}"])
    assert [trial["figures"]["source"] for trial in answer["trials"]] == ["captured"] * 3
    assert any("micro-batches, which do not grow as the knob" in note for note in answer["notes"])
