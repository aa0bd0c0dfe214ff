"""The `nvidia-smi` that scripts start lists the GPUs of the emulated NVML."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from presim.capture.processes.variables import environment
from presim.capture.setup.shim import require_shim
from presim.hardware import catalogue
from presim.hardware.device_config import device_config


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "device").write_text(device_config(catalogue.gpu("h100-sxm"), 2))
    return environment(require_shim(), tmp_path / "device", tmp_path, {})


def started(variables: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["nvidia-smi", *words], env=variables, capture_output=True, text=True, check=False)


def test_the_table_names_each_gpu(variables: dict[str, str]) -> None:
    lines = started(variables).stdout.splitlines()
    gpus = [line for line in lines if "NVIDIA H100 80GB HBM3" in line]
    assert [line.split()[1] for line in gpus] == ["0", "1"]
    assert {len(line) for line in lines} == {79}


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("--query-gpu=index,name", "--format=csv,noheader"), ["0, NVIDIA H100 80GB HBM3", "1, NVIDIA H100 80GB HBM3"]),
        (("--query-gpu", "memory.used,compute_cap", "--format=csv,nounits", "-i", "1"), [
            "memory.used, compute_cap", "0, 9.0"]),
        (("--query-gpu=memory.used,temperature.gpu", "--format=csv", "--id=0"), [
            "memory.used [MiB], temperature.gpu", "0 MiB, [N/A]"]),
        (("--query-compute-apps=pid", "--format=csv,noheader"), [""]),
        (("-i", "2"), ["No devices were found"]),
    ],
)  # fmt: skip
def test_queries(variables: dict[str, str], words: tuple[str, ...], lines: list[str]) -> None:
    assert started(variables, *words).stdout.splitlines() == lines


def test_other_options_are_refused(variables: dict[str, str]) -> None:
    refused = started(variables, "topo", "-m")
    assert (refused.returncode, refused.stderr) == (2, "presim's nvidia-smi does not have topo, -m\n")


def test_outside_a_capture_it_says_so(variables: dict[str, str]) -> None:
    bare = {name: value for name, value in variables.items() if name != "PRESIM_DEVICE"}
    assert started(bare).stderr == "presim's nvidia-smi answers only within presim run\n"
