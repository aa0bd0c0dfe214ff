"""The campaign for a machine with a GPU: what can be tested without one, its files, its budget and its comparison."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from presim import hardware
from presim.capture.setup.shim import SHIM_DIRECTORY
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.measured import table
from presim.cost.measured.measured_rows import Measurement
from presim.cost.profile import CARD_LOST
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
compare_serving = load("compare_serving")
attempts = load("serving_work/attempts")


def test_steps_that_are_done_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(campaign, "outcome", lambda command, *_: asked.append(" ".join(command[1:])) or {"ok": 1})
    campaign.append(tmp_path / "steps.jsonl", {"arguments": campaign.STEPS[0], "ok": 1})
    assert campaign.PARTS["steps"](tmp_path, time.monotonic() + 1000) == "steps: nothing left"
    assert asked == list(campaign.STEPS[1:])
    assert len(campaign.lines_of(tmp_path / "steps.jsonl")) == len(campaign.STEPS)


def test_without_time_nothing_is_begun(tmp_path: Path) -> None:
    assert campaign.PARTS["steps"](tmp_path, time.monotonic() + 15) == f"steps: {len(campaign.STEPS)} left"
    assert campaign.overlap(tmp_path, time.monotonic() + 15) == "overlap: not begun"
    assert campaign.PARTS["serving"](tmp_path, time.monotonic() + 15) == "serving: not begun"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_script_that_fails_leaves_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one that ends its process."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(SHIM_DIRECTORY / "lib"))  # PyTorch loads them when it is imported
    script = tmp_path / "script.py"

    def outcome(source: str, seconds: float = 120) -> object:
        script.write_text(source)
        return campaign.outcome([str(script)], seconds)["error"]

    assert outcome("raise ValueError('no')") == "ValueError: no"
    assert outcome("pass") == "InputError: the script made 0 optimizer steps, 22 are needed"
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
    assert campaign.PARTS["steps"](tmp_path, time.monotonic() + 100) == f"steps: {left} left"
    assert campaign.PARTS["steps"](tmp_path, time.monotonic() + 100) == f"steps: {left - 2} left"
    assert [line.get("error") for line in campaign.lines_of(tmp_path / "steps.jsonl")] == [None, cut["error"], None]


def test_serving_rows_are_priced_by_what_they_measured(tmp_path: Path) -> None:
    """A product's error is that of its price; a step's parts add up once each of them was measured."""
    gpu = {"gpu": "NVIDIA H100 80GB HBM3"}
    shape = {"layer": "8b o", "m": 1, "n": 4096, "k": 4096, "kind": "bfloat16"}
    product = {**gpu, "family": "product", "shape": shape, "graph_s": 1e-5, "alone_s": 1.2e-5}
    failed = {**gpu, "family": "product", "shape": {**shape, "m": 2}, "error": "no such kernel"}
    priced = compare_serving.Priced([product, failed])
    predicted = priced.predicted(product)
    assert 1e-6 < predicted < 1e-4
    assert list(compare_serving.errors(priced))[4:] == [
        f"| product | bfloat16, 1 to 16 rows | 1 | {100 * abs(predicted / 1e-5 - 1):+.1f} % "
        f"| {100 * abs(predicted / 1e-5 - 1):+.1f} % | {100 * (predicted / 1e-5 - 1):+.1f} % |"
    ]
    assert list(compare_serving.failures([product, failed]))[-1].endswith("| no such kernel |")
    step = {"model": "llama-3-8b", "sequences": [[1, 1, 1024]]}
    assert compare_serving.parts(step, {}) is None


def test_a_step_is_the_sum_of_its_measured_kernels() -> None:
    """32 layers of two norms, three small kernels, attention and four products, and the logits."""
    sizes = {"tokens": 8, "heads": 32, "kv_heads": 8}
    shapes = [
        ("pointwise", {"kernel": "add_norm", "tokens": 8, "width": 4096}),
        ("pointwise", {"kernel": "silu_and_mul", "tokens": 8, "width": 14336}),
        ("pointwise", {"kernel": "rotary", **sizes}),
        ("pointwise", {"kernel": "store", **sizes}),
    ]
    sequences = [[8, 1, 1024]]
    asked = {"kernel": "flash3", "heads": 32, "kv_heads": 8, "sequences": sequences, "dtype": "bfloat16"}
    measured = {json.dumps([family, shape], sort_keys=True): 1.0 for family, shape in [*shapes, ("attention", asked)]}
    measured |= {f"8b {name} 8": 1.0 for name in ("qkv", "o", "gate_up", "down")} | {"8b lm_head 8": 0.5}
    assert compare_serving.parts({"model": "llama-3-8b", "sequences": sequences}, measured) == 32 * 10 + 0.5


def test_cases_that_failed_are_measured_last_and_once_more() -> None:
    """A case with a result is done, whatever it failed with before."""
    cases = [SimpleNamespace(family="step", shape={"size": size}) for size in (1, 2, 3, 4, 4)]
    good = {size: {"family": "step", "shape": {"size": size}, "graph_s": 1.0} for size in (1, 2, 3, 4)}
    bad = {size: {"family": "step", "shape": {"size": size}, "error": "out of memory"} for size in (1, 2, 3, 4)}

    def left(*rows: dict[str, object]) -> list[int]:
        return [case.shape["size"] for case in attempts.unmeasured(rows, cases)]

    assert left(bad[1]) == [2, 3, 4, 1]
    assert left(bad[1], bad[2], bad[1], good[4]) == [3, 2]
    assert left(bad[1], good[1]) == [2, 3, 4]
    assert [*compare_serving.failures([bad[1], good[1]])] == []


class Counter:
    """An energy counter that changes every 20 ms, of a GPU that draws 350 W."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        self.now += 0.001
        return 350 * (self.now // 0.02) * 0.02


def test_power_is_taken_between_changes_of_the_counter() -> None:
    """Not between the ends of the window, between which the counter lags."""
    meter = load("meter")
    counter, samples, last = Counter(), [], 0.0
    for _ in range(170):
        joules = counter.read()
        if joules != last:
            samples.append((counter.now, joules, 1500.0, 2619.0, 40.0))
            last = joules
    found = meter.summary(samples)
    assert found["watts"] == pytest.approx(350)
    assert found["counter_step_s"] == pytest.approx(0.02)
    with pytest.raises(RuntimeError, match=r"the energy counter changed 1 times in the window; at least 2 are needed"):
        meter.summary(samples[:1])


def test_a_case_that_fails_or_hangs_leaves_a_row_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = load("cases")
    monkeypatch.setattr(cases, "CASE_S", 1)
    monkeypatch.setattr(cases, "usable", lambda: True)

    def hangs() -> dict[str, object]:
        while True:
            pass

    pending = {"fails": lambda: {}["no"], "hangs": hangs, "works": lambda: {"ns": 1.0}}
    assert cases.run(pending, tmp_path / "rows.jsonl", time.monotonic() + 60, {"gpu": "H100"}) == 0
    rows = campaign.lines_of(tmp_path / "rows.jsonl", "ns")
    assert [row.get("error") for row in rows] == ["KeyError: 'no'", "TimeoutError: not done after 1 s", None]


def test_a_case_with_which_the_process_ended_is_not_begun_again(tmp_path: Path) -> None:
    cases, results = load("cases"), tmp_path / "rows.jsonl"
    cases.begun(results).write_text("hangs")
    cases.mark_ended(results)
    cases.mark_ended(results)
    assert campaign.lines_of(results) == [{"case": "hangs", "error": "the process ended with this case"}]


def test_a_script_goes_on_behind_a_case_that_lost_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter([CARD_LOST, -11, 0])
    made: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        made.append(command)
        return subprocess.CompletedProcess(command, next(codes), "nothing left\n", "")

    monkeypatch.setattr(campaign.subprocess, "run", run)
    assert campaign.PARTS["energy"](tmp_path, time.monotonic() + 1000) == "energy: nothing left"
    assert len(made) == 3
    assert made[0][1].endswith("energy.py")
    assert float(made[0][3]) <= campaign.SCRIPTS["energy"]
    assert campaign.PARTS["energy"](tmp_path, time.monotonic() + 20) == "energy: not begun"


def test_latencies_stand_beside_the_constants_that_they_measure(tmp_path: Path) -> None:
    rows = [
        {"case": "launch, one argument", "ns": 2100.0},
        {"case": "launch until a flag is seen", "ns": 6100.0},
        {"case": "launches until the host waits", "launches": 1022},
        {"case": "memory", "gpu": "NVIDIA H100 80GB HBM3", "context": 500 << 20, "with cuBLAS": 600 << 20},
        {"case": "h2d pinned of 1048576 bytes: device", "ns": 20000.0},
        {"case": "runtime", "error": "no nvcc"},
    ]
    (tmp_path / "latencies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = list(load("compare_cases").latencies(tmp_path))
    assert (
        "| device.launch_latency_ns | 3000 | 4000.00 | launch until a flag is seen, less launch, one argument |"
        in lines
    )
    assert "| device.queue_depth | 1024 | 1022 | launches until the host waits |" in lines
    assert "| context_MiB | 755 | 600 | with cuBLAS |" in lines
    assert "| runtime | no nvcc | | |" in lines
    assert any(line.startswith("| h2d pinned of 1048576 bytes: device | 20.00 | ") for line in lines)


def test_power_stands_beside_the_shares_of_its_class(tmp_path: Path) -> None:
    row = {"gpu": "NVIDIA H100 80GB HBM3", "limit_watts": 700.0, "sm_MHz": 1980.0, "degrees": 40.0, "run_s": 1e-3}
    rows = [{"case": "gaps of 50 %", "watts": 350.0, **row}, {"case": "fp8 8192x8192x8192", "watts": 630.0, **row}]
    (tmp_path / "energy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = list(load("compare_cases").power(tmp_path))[4:]
    assert lines[0].startswith("| gaps of 50 % | 350 | 0.500 | 0.577 | ")
    assert lines[1].startswith("| fp8 8192x8192x8192 | 630 | 0.900 | 0.980 | 0.80 to 1.00 | 1980 | 40 | 1000.0 us |")


def test_the_comparison_marks_cases_as_the_script_of_latencies_does() -> None:
    """It cannot import that script, which needs PyTorch's libraries."""
    compare_cases, source = load("compare_cases"), (FOLDER / "latencies.py").read_text()
    assert f'PYTORCH_ONLY = "{compare_cases.PYTORCH_ONLY}"' in source
    assert f"BATCHES, CALLS = {compare_cases.BATCHES}, " in source
    assert f"MARK, MARK_STEP = {compare_cases.MARK >> 20} << 20, {compare_cases.MARK_STEP} " in source
