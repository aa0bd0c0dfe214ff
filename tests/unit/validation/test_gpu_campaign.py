"""The campaign for a machine with a GPU: what can be tested without one, its files, its budget and its comparison."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from presim import hardware
from presim.capture.setup.shim import SHIM_DIRECTORY
from presim.cost.analytic.estimator import AnalyticEstimator
from presim.cost.measured import table
from presim.cost.measured.rows import Measurement
from presim.trace.signatures import Gemm

FOLDER = Path(__file__).parent.parent.parent.parent / "validation" / "gpu"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


campaign = load("campaign")
compare = load("compare")


def test_steps_that_are_done_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(campaign, "outcome", lambda command, *_: asked.append(" ".join(command[1:])) or {"ok": 1})
    campaign.append(tmp_path / "steps.jsonl", {"arguments": campaign.STEPS[0], "ok": 1})
    assert campaign.steps(tmp_path, time.monotonic() + 1000) == "steps: nothing left"
    assert asked == list(campaign.STEPS[1:])
    assert len(campaign.lines_of(tmp_path / "steps.jsonl")) == len(campaign.STEPS)


def test_without_time_nothing_is_begun(tmp_path: Path) -> None:
    assert campaign.steps(tmp_path, time.monotonic() + 30) == f"steps: {len(campaign.STEPS)} left"
    assert campaign.overlap(tmp_path, time.monotonic() + 30) == "overlap: not begun"
    assert list(tmp_path.iterdir()) == []


def test_a_script_that_fails_leaves_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one that ends its process."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(SHIM_DIRECTORY / "lib"))  # PyTorch loads them when it is imported
    script = tmp_path / "script.py"

    def outcome(source: str, seconds: float = 120) -> object:
        script.write_text(source)
        return campaign.outcome([str(script)], seconds)["error"]

    assert outcome("raise ValueError('no')") == "ValueError: no"
    assert outcome("pass") == "InputError: the script made 0 optimizer steps, 14 are needed"
    assert outcome("import os; os._exit(3)") == "it ended with exit code 3"
    assert outcome("import threading; threading.Event().wait()", 0.1) == f"{campaign.CUT_OFF} 0 s"


def test_every_model_of_the_steps_is_one_of_the_recipe() -> None:
    recipe = campaign.RECIPE.read_text()
    assert all(f'"{arguments.split()[1]}"' in recipe for arguments in campaign.STEPS)


def test_the_comparison_has_operators_and_overlap(tmp_path: Path) -> None:
    work = Gemm(4096, 4096, 4096, 1, "bfloat16", layout="NT")
    (price,) = AnalyticEstimator(hardware.gpu("h100-sxm")).price([work])
    assert price is not None
    row = Measurement(gpu="h100-sxm", signature=work, duration_ns=1.1 * price.duration_ns, source="test")
    table.write([row], tmp_path / f"h100-sxm{table.SUFFIX}", {})
    (line,) = list(compare.operators(tmp_path))[4:]
    assert line.startswith("| h100-sxm | gemm | learned/gemm-half | 1 | ")
    assert list(compare.steps(tmp_path))[-1] == "|---|---|---:|---:|"


def test_overlap_is_compared_with_the_prediction_for_the_same_neighbour(tmp_path: Path) -> None:
    """A product has the SMs that are not held; a norm beside one that takes all of the bandwidth has half of it."""
    pair = {"gpu": "NVIDIA H100 80GB HBM3", "neighbour_sms": 33, "neighbour_GBps": 0.0, "beside": "a kernel"}
    product = {**pair, "work": "gemm 8192^3", "alone_s": 1.6e-3, "beside_s": 2.0e-3}
    norm = {**pair, "neighbour_sms": 0, "neighbour_GBps": 3016.0, "work": "layer norm 65536x4096"}
    norm |= {"alone_s": 2 * compare.ROWS_BYTES / 3.016e12, "beside_s": 5e-4}
    failed = {"gpu": pair["gpu"], "work": "gemm 8192^3", "beside": "copy", "error": "out of memory"}
    (tmp_path / "overlap.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (product, norm, failed)))
    lines = list(compare.overlaps(tmp_path))[5:]
    assert lines.pop() == "| NVIDIA H100 80GB HBM3 | gemm 8192^3 | copy | | out of memory | |"
    assert lines[0] == "| h100-sxm | gemm 8192^3 | a kernel | 0 | 25.0 % | 33.3 % |"
    assert lines[1].endswith("| 100.0 % |")


def test_operators_that_launched_as_often_are_not_listed() -> None:
    lines = compare.launches("a", {"aten::mm": 9, "aten::add": 2, "aten::mul": 4}, {"aten::mm": 9, "aten::add": 3})
    assert lines == ["| a | aten::mul | 4 | 0 |", "| a | aten::add | 2 | 3 |"]


def test_a_script_that_is_cut_off_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it had all the time of a call, which the next one would not better."""
    cut = {"error": f"{campaign.CUT_OFF} 100 s"}
    answers = iter([{"ok": 1}, cut, cut, {"ok": 1}, cut])
    monkeypatch.setattr(campaign, "outcome", lambda *_: next(answers))
    left = len(campaign.STEPS) - 1
    assert campaign.steps(tmp_path, time.monotonic() + 1000) == f"steps: {left} left"
    assert campaign.steps(tmp_path, time.monotonic() + 1000) == f"steps: {left - 2} left"
    assert [line.get("error") for line in campaign.lines_of(tmp_path / "steps.jsonl")] == [None, cut["error"], None]
