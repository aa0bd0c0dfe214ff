"""`presim compare`: saved jobs, results and variants of one job, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.cli import main
from presim.studies import saved_jobs
from presim.trace import job_store
from support import workloads


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of 128 ranks, saved."""
    directory = tmp_path_factory.mktemp("compared") / "job"
    job_store.save([workloads.llama_8b(steps=2, layers=3)], directory)
    return directory


def called(capsysbinary: pytest.CaptureFixture[bytes], *args: object) -> tuple[int, str, str]:
    code = main.run([str(arg) for arg in args])
    out, err = capsysbinary.readouterr()
    return code, out.decode(), err.decode()


def test_a_job_is_compared_with_itself_on_another_gpu(
    saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Terminal, JSON and page show the same change."""
    files = tmp_path / "c.json", tmp_path / "c.html"
    code, out, _ = called(
        capsysbinary, "compare", saved, "--with", "--gpu b200", "--json", files[0], "--html", files[1]
    )
    assert code == 0
    comparison = json.loads(files[0].read_bytes())
    assert [result["label"] for result in comparison["results"]] == [str(saved), "--gpu b200"]
    (difference,) = comparison["differences"]
    assert difference["settings"] == ["GPU: h100-sxm -> b200"]
    assert "the step is" in out
    assert f"({difference['speedup']:.2f}x as fast" in " ".join(out.split())
    page = files[1].read_text()
    assert f"({difference['speedup']:.2f}x as fast" in page
    assert "http" not in page


def test_a_result_is_compared_as_its_job_is(
    saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    called(capsysbinary, "simulate", saved, "-q", "--json", tmp_path / "a.json")
    code, out, _ = called(capsysbinary, "compare", saved, tmp_path / "a.json", "-q", "--json", "-")
    assert code == 0
    assert json.loads(out)["differences"][0]["step_time_change_s"] == 0


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--with", "--gpux b200"), "presim: --with '--gpux b200' cannot be used: No such option '--gpux'."),
        (
            ("--with", "--json a.json"),
            "presim: --with '--json a.json' has options that a comparison does not support (json_file); use",
        ),
        (("--with", "--gpu 'b200"), 'presim: --with "--gpu \'b200" cannot be used: No closing quotation; see'),
        (
            ("no-such.json",),
            "presim: there is no no-such.json; name a folder written by --save or a file",
        ),
        ((), "presim: a comparison needs two results, got 1; name another, or vary one with --with"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(
    saved: Path, args: tuple[str, ...], sentence: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    code, out, err = called(capsysbinary, "compare", saved, *args)
    assert (code, out) == (2, "")
    assert err.startswith(sentence)
    assert err.count("\n") == 1


def test_a_result_alone_cannot_be_simulated_again(
    saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    called(capsysbinary, "simulate", saved, "-q", "--json", tmp_path / "a.json")
    code, _, err = called(capsysbinary, "compare", tmp_path / "a.json", "--with", "--gpu b200")
    assert code == 2
    said = "is a result, and only a saved job can be simulated again: name its folder first"
    assert err == f"presim: {tmp_path / 'a.json'} {said}\n"


def test_a_missing_job_is_named_before_another_is_simulated(
    saved: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_jobs, "evaluate_saved", lambda *arguments: pytest.fail("simulated"))
    code, _, err = called(capsysbinary, "compare", saved, "no-such.json")
    assert (code, err.startswith("presim: there is no no-such.json;")) == (2, True)
