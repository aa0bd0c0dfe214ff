"""`presim training`: from a saved job to days and money."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.cli import main
from presim.trace import job_store
from presim.units import plain
from support import workloads


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("training") / "job"
    job_store.save([workloads.llama_8b(steps=2, layers=3)], directory)
    return directory


def called(capsysbinary: pytest.CaptureFixture[bytes], *args: object) -> tuple[int, str, str]:
    code = main.run([str(arg) for arg in args])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def test_terminal_json_and_page_say_the_same(
    saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    files = tmp_path / "t.json", tmp_path / "t.html"
    words = ("--tokens", "1e12", "--price-per-gpu-hour", "2.5", "--runs", "20", "--json", files[0], "--html", files[1])
    code, out, _ = called(capsysbinary, "training", saved, *words)
    assert code == 0
    days = plain(json.loads(files[0].read_bytes())["days"]["mean"])
    assert days in out
    page = files[1].read_text()
    assert f"<b>{days}</b>" in page
    assert "http" not in page


def test_a_budget_is_needed(saved: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    code, _, err = called(capsysbinary, "training", saved)
    assert code == 2
    assert "Missing option '--tokens'" in err


def test_the_verbs_of_a_step_report_a_whole_training_too(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """With the defaults of `presim training`; a price without tokens is refused before any work."""
    job_store.save([workloads.llama_8b(steps=2, layers=1)], tmp_path / "job")
    words = ["--tokens", "1e12", "--price-per-gpu-hour", "2.5"]
    assert main.run(["simulate", str(tmp_path / "job"), *words]) == 0
    both = capsysbinary.readouterr().out.decode()
    assert main.run(["training", str(tmp_path / "job"), *words]) == 0
    assert capsysbinary.readouterr().out.decode() in both
    assert main.run(["simulate", str(tmp_path / "job"), *words[2:]]) == 2
    error = capsysbinary.readouterr().err.decode()
    assert error == "presim: --price-per-gpu-hour 2.5 prices a whole training: add --tokens N\n"


def test_the_json_and_the_page_of_a_step_hold_the_training_that_its_report_shows(
    saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """`presim simulate --tokens`: what is printed is in the other outputs, too."""
    out, page = tmp_path / "step.json", tmp_path / "step.html"
    code, printed, _ = called(capsysbinary, "simulate", saved, "--tokens", "1e12", "--json", out, "--html", page)
    training = json.loads(out.read_bytes())["training"]
    assert code == 0
    assert training["tokens"] == 1e12
    for text in (printed, page.read_text()):
        assert plain(training["days"]["mean"]) in text
