"""Measuring in parts: each call continues the last one and keeps its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from presim import hardware
from presim.cost.measured import table
from presim.cost.measured.measured_estimator import MeasuredEstimator
from presim.cost.price import Origin
from presim.cost.profile import CARD_LOST, run_profile
from presim.cost.profile.measurement_plan import MeasurementPlan
from presim.errors import InputError
from presim.trace.signatures import (
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Index,
    Normalization,
    Optimizer,
    Random,
    Reduction,
    Signature,
)

GPU = hardware.gpu("h100-sxm")
WORK = [Gemm(m, 512, 512, 1, "bfloat16") for m in (512, 1024, 2048)]
_NORM = "aten::native_layer_norm_backward"
CARD = {"gpu": GPU.name, "torch": "2.14"}


def line(signature: Signature, **more: Any) -> dict[str, Any]:
    row = {"duration_ns": 5e4, "spread": 0.01, "samples": 20}
    return {"signature": json.loads(msgspec.json.encode(signature)), **row, **more}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[MeasurementPlan]:
    """A fake measuring process that measures two signatures per call and records its input."""
    plans: list[MeasurementPlan] = []

    def measure(planned: MeasurementPlan, scratch: Path, seconds: float) -> list[dict[str, Any]]:
        plans.append(planned)
        return [CARD, *(line(each) for each in planned.work[:2])]

    monkeypatch.setattr(run_profile, "_measure", measure)
    return plans


def test_a_second_call_measures_the_rest(tmp_path: Path, asked: list[MeasurementPlan]) -> None:
    first = run_profile.profile([*WORK, Collective("all_reduce", 8, "float32", 0)], tmp_path, 60, GPU)
    assert (first.measured, first.num_known, first.num_unmeasured) == (2, 0, 1)
    assert first.rejected == {"collectives need the cluster: presim fit --nccl-tests": 1}
    second = run_profile.profile(WORK, tmp_path, 60, GPU)
    assert (second.measured, second.num_known, second.num_unmeasured) == (1, 2, 0)
    assert asked[1].work == (WORK[2],)
    third = run_profile.profile(WORK, tmp_path, 60, GPU)
    assert (third.measured, third.num_known, len(asked)) == (0, 3, 2)
    (path,) = table.find(tmp_path)
    assert {row.signature for row in table.read([path]).rows} == set(WORK)
    assert table.origin_of(path)["torch"] == "2.14"


@pytest.mark.parametrize(
    "signature",
    [
        msgspec.structs.replace(WORK[0], dtype="float8_e4m3fn", out_dtype="bfloat16", layout="NT", scaling="outer"),
        GroupedGemm(8, 4096, 512, 512, "bfloat16"),
        Elementwise(4 << 20, 4 << 20, 1 << 20, "float32", operator="aten::mul"),
        Index((1 << 21) + 8192, 1 << 21, 1 << 24, "bfloat16", operator="aten::gather"),
        Normalization((4 << 20) + (12 << 10), (2 << 20) + 4096, 1 << 20, "bfloat16", 1, _NORM, 1024),
        Optimizer(16 * (1 << 20) + 16, 12 * (1 << 20) + 16, 1 << 20, "float32", 4, "aten::_fused_adamw_"),
        Random(2 << 20, 3 << 20, 1 << 20, "bfloat16", operator="aten::native_dropout"),
        Reduction(2 << 20, 2048, 1 << 20, "bfloat16", operator="aten::sum"),
    ],
)
def test_measured_times_are_the_prices(tmp_path: Path, asked: list[MeasurementPlan], signature: Signature) -> None:
    """For each family: an exact match in the table takes precedence over interpolation."""
    assert run_profile.profile([signature], tmp_path, 60, GPU).measured == 1
    (price,) = MeasuredEstimator(GPU, table.read(table.find(tmp_path)).rows).price([signature])
    assert price is not None
    assert (price.duration_ns, price.origin) == (50_000, Origin.MEASURED)


def test_failed_and_impossible_results_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [CARD, {**line(WORK[0]), "error": "out of memory"}, line(WORK[1], duration_ns=250.0), line(WORK[2])]
    monkeypatch.setattr(run_profile, "_measure", lambda *args: lines)
    made = run_profile.profile(WORK, tmp_path, 60, GPU)
    assert made.measured == 1
    assert made.rejected == {"PyTorch: out of memory": 1, "faster than the datasheet's peak allows": 1}


def test_an_incomplete_line_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "results").write_text(json.dumps(CARD) + "\n" + json.dumps(line(WORK[0])) + '\n{"signature": {"fam')
    assert run_profile.read_lines(tmp_path / "results") == [CARD, line(WORK[0])]
    assert run_profile.read_lines(tmp_path / "absent") == []


def test_results_before_ctrl_c_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(command: list[str], **more: Any) -> None:
        Path(command[-2]).write_text("\n".join(map(json.dumps, (CARD, line(WORK[0])))))
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        run_profile.profile(WORK, tmp_path, 60, GPU)
    (path,) = table.find(tmp_path)
    assert raised.value.__notes__ == [f"{path}: 1 measured, 0 known already, 2 left for the next call"]
    assert [row.signature for row in table.read([path]).rows] == WORK[:1]


def test_ctrl_c_before_any_result_leaves_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(command: list[str], **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_profile.profile(WORK, tmp_path / "out", 60, GPU)
    assert not (tmp_path / "out").exists()


def test_work_that_breaks_the_gpu_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel error fails all later work of its process; another process measures the rest."""
    asked: list[list[Signature]] = []

    def measuring(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        asked.append(msgspec.json.decode(Path(command[-3]).read_bytes(), type=list[Signature]))
        broken = WORK[1] in asked[-1]
        rows = [line(WORK[0]), {**line(WORK[1]), "error": "an illegal access"}] if broken else [line(WORK[2])]
        with Path(command[-2]).open("a") as results:
            results.writelines(json.dumps(row) + "\n" for row in (CARD, *rows))
        return subprocess.CompletedProcess(command, CARD_LOST if broken else 0, "", "")

    monkeypatch.setattr(subprocess, "run", measuring)
    made = run_profile.profile(WORK, tmp_path, 60, GPU)
    assert asked == [WORK, WORK[2:]]
    assert (made.measured, made.num_unmeasured, made.rejected) == (2, 0, {"PyTorch: an illegal access": 1})


def test_a_machine_without_a_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([sys.executable], 3, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *args, **more: ended)
    with pytest.raises(InputError, match="there is no GPU here that PyTorch can use"):
        run_profile.profile(WORK, tmp_path, 60, GPU)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_process_is_reported_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([sys.executable], 1, "", "Traceback\nRuntimeError: driver too old")
    monkeypatch.setattr(subprocess, "run", lambda *args, **more: ended)
    with pytest.raises(InputError, match="measuring failed: RuntimeError: driver too old"):
        run_profile.profile(WORK, tmp_path, 60, GPU)


def test_a_gpu_is_found_by_its_driver_s_name() -> None:
    assert run_profile.gpu_named("NVIDIA B200").id == "b200"
    with pytest.raises(InputError, match="the catalogue has no GPU named 'Voodoo 2'"):
        run_profile.gpu_named("Voodoo 2")
    with pytest.raises(InputError, match="there is no GPU here"):
        run_profile.gpu_named("")
    with pytest.raises(
        InputError, match=r"that PyTorch can use \(ModuleNotFoundError: No module named 'torch'\); presim"
    ):
        run_profile.gpu_named("", "ModuleNotFoundError: No module named 'torch'")
    with pytest.raises(InputError, match="a PyTorch with NVIDIA's libraries, which `make venv` omits"):
        run_profile.gpu_named("", "ImportError: libcudnn.so.9: cannot open shared object file")
