"""A device is fitted to the user's own operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.cli import main
from presim.hardware import catalogue

DEVICE = """name = "Fitted device"
vendor = "acme"
nominal_memory_GB = 64
memory_bandwidth_GBps = 2000
bf16_dense_TFLOPs = 300
"""
PEAK, BANDWIDTH, START = 300e12 * 0.55, 2e12 * 0.7, 12e-6


def table(*, unit: float = 1e6) -> str:
    """Operators of a device that reaches 55 % of its peak and 70 % of its bandwidth, and starts kernels in 12 us."""
    lines = ["op,dtype,m,n,k,batch,bytes,us"]
    for m in (256, 1024, 8192):
        for k in (1024, 4096, 8192):
            arithmetic, moved = 2 * m * 4096 * k / PEAK, 2 * (m * k + k * 4096 + m * 4096) / BANDWIDTH
            taken = (arithmetic**4 + moved**4) ** 0.25 + START
            lines.append(f"matmul,bfloat16,{m},4096,{k},,,{taken * unit}")
    lines += [f"copy,float32,,,,,{2**power},{(2**power / BANDWIDTH + START) * unit}" for power in range(16, 31)]
    return "\n".join(lines) + "\n"


def fit(folder: Path, text: str) -> int:
    (folder / "device.toml").write_text(DEVICE)
    (folder / "operators.csv").write_text(text)
    paths = {name: str(folder / name) for name in ("operators.csv", "device.toml", "fitted.toml")}
    return main.run(
        ["fit", "--operators", paths["operators.csv"], "--gpu", paths["device.toml"], "--out", paths["fitted.toml"]]
    )


def test_the_fit_finds_shares_and_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(tmp_path, table()) == 0
    fitted = catalogue.gpu(str(tmp_path / "fitted.toml"))
    assert fitted.matrix_share == pytest.approx(0.55, rel=0.06)
    assert fitted.memory_share == pytest.approx(0.7, rel=0.06)
    assert fitted.launch_ns == pytest.approx(12_000, rel=0.1)
    assert 0 < fitted.share_spread < 0.1
    source = fitted.source("matrix_share")
    assert source is not None
    assert "24 rows of operators.csv" in source.text
    assert "80 of 100 within" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op,us\nmatmul,5\n", "no column 'dtype'; the columns are op, dtype, us, and m, n, k, batch or bytes"),
        ("op,dtype,us\nconv,bfloat16,5\n", "row 1: op = 'conv' is none of matmul, copy; correct it"),
        ("op,dtype,m,n,k,us\nmatmul,bfloat16,4,-1,4,5\n", "row 1: n = '-1' must be a positive number; correct it"),
        (
            table(unit=1e3),
            "0 rows of matmul are possible by the datasheet of device, of 24 rows in all; give at least 6",
        ),
    ],
)
def test_a_bad_table_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    assert fit(tmp_path, text) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "fitted.toml").exists()


def test_a_gpu_is_sent_to_its_own_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "operators.csv").write_text(table())
    arguments = ["fit", "--operators", str(tmp_path / "operators.csv"), "--gpu", "h100", "--out", str(tmp_path / "x")]
    assert main.run(arguments) == 2
    assert "h100-sxm is a GPU, of which `presim" in capsys.readouterr().err
