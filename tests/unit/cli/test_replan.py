"""The verb that extends saved jobs, on the command line and from Python."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

import presim
from presim.cli import main
from presim.composition.replan import insertion
from presim.report import json
from presim.trace import job_store
from presim.trace.schema import Group, Trace
from support.replanned_programs import Block, Program

PROGRAM = Program([(0, 1, False), (0, 2, True), (1, 3, True), (0, 2, False)], blocks=[Block(0, 3, 0)], steps=3)


def saved(directory: Path, *traces: Trace) -> Path:
    """Ranks of a job of two GPUs that exchange messages."""
    manifests = [
        msgspec.structs.replace(
            trace.manifest, world_size=2, rank=rank, gpus_per_node=2, groups=(Group("pipeline", (0, 1), 2),)
        )
        for rank, trace in enumerate(traces)
    ]
    job_store.save(
        [dataclasses.replace(trace, manifest=manifest) for trace, manifest in zip(traces, manifests)], directory
    )
    return directory


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return saved(tmp_path / "job", dataclasses.replace(PROGRAM, slots=[(0, 1, False), (0, 2, False)]).trace(6))


def test_more_micro_batches_take_longer_and_the_reader_learns_why(
    job: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    usual, extended = presim.replan(job), presim.replan(job, micro_batches=12)
    assert usual.step_time_s is not None
    assert extended.step_time_s is not None
    assert 1.5 * usual.step_time_s < extended.step_time_s < 2.1 * usual.step_time_s
    note = "Extended from 6 to 12 micro-batches"
    assert [note in " ".join(result.notes) for result in (usual, extended)] == [False, True]
    assert main.run(["replan", str(job), "--micro-batches", "12"]) == 0
    assert note in " ".join(capsysbinary.readouterr().out.decode().split()).replace(" - ", " ")


def test_a_saved_extension_is_a_job_like_others(job: Path, tmp_path: Path) -> None:
    """It says what it is, gives the same answer, and may be extended again."""
    first = presim.replan(job, micro_batches=9, save=tmp_path / "longer")
    again = presim.simulate(tmp_path / "longer")
    assert json.encode(first) == json.encode(again)
    direct, twice = presim.replan(job, micro_batches=20), presim.replan(tmp_path / "longer", micro_batches=20)
    assert direct.step_time_s == twice.step_time_s


REFUSED = [
    (("--micro-batches", 4), "presim: the job was captured with 6 micro-batches and cannot be cut to 4; choose at "),
    (
        ("--micro-batches", 12, "--dp", 2, "--nodes", 2),
        "presim: --dp 2 sets the number of ranks, and so do --nodes and ",
    ),
    (
        ("--micro-batches", 12, "--save", "/proc/no"),
        "presim: cannot save the trace to /proc/no: ",
    ),
    (("--micro-batches", 12, "--gpu", "h100-smx"), "presim: unknown GPU 'h100-smx': did you mean h100-sxm"),
]


def test_a_capture_is_not_replaced_by_its_extension(job: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Also under another name of its folder; it is whole afterwards."""
    assert main.run(["replan", str(job), "--micro-batches", "12", "--save", f"{job}/../job"]) == 2
    assert b"would replace the captured job" in capsysbinary.readouterr().err
    assert main.run(["replan", str(job), "--micro-batches", "6"]) == 0


def test_an_extension_that_memory_does_not_hold_is_refused(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Before it is made: a machine of a megabyte has no room for 60,000 micro-batches, but for twelve."""
    monkeypatch.setattr(insertion, "_machine_bytes", lambda: 1 << 20)
    assert main.run(["replan", str(job), "--micro-batches", "60000"]) == 2
    assert b"10,000 times those captured, which take" in capsysbinary.readouterr().err
    assert main.run(["replan", str(job), "--micro-batches", "12"]) == 0


@pytest.mark.parametrize(("args", "message"), REFUSED)
def test_what_cannot_be_done_is_one_sentence(
    job: Path, args: tuple[object, ...], message: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """On standard error, with exit code 2, and nothing is saved."""
    code = main.run(["replan", str(job), *map(str, args)])
    out, err = capsysbinary.readouterr()
    assert (code, out.decode()) == (2, "")
    assert err.decode().startswith(message)
    assert err.count(b"\n") == 1


@pytest.mark.parametrize(
    ("number", "says"),
    [
        ("0", "0 is not a number of micro-batches from 1 to 65,536"),
        ("a few", "'a few' is not a whole number"),
    ],
)
def test_numbers_have_bounds(job: Path, number: str, says: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main.run(["replan", str(job), "--micro-batches", number]) == 2
    assert says in capsysbinary.readouterr().err.decode()


def test_a_job_that_does_not_repeat_is_refused(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """And no half of a job is left behind."""
    job = saved(tmp_path / "job", dataclasses.replace(PROGRAM, slots=[(0, 1, False), (0, 2, False)]).trace(1))
    code = main.run(["replan", str(job), "--micro-batches", "8", "--save", str(tmp_path / "longer")])
    assert code == 2
    assert "capture it with more micro-batches, twice as many as" in capsysbinary.readouterr().err.decode()
    assert not (tmp_path / "longer").exists()


def test_there_is_no_job(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main.run(["replan", str(tmp_path / "job"), "--micro-batches", "8"]) == 2
    assert "holds no trace" in capsysbinary.readouterr().err.decode()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--wider", "{job}"), "add --world-size"),
        (("--wider", "{job}", "--world-size", "4"), "the wider capture has 2 ranks and the other 2"),
        (("--wider", "{job}", "--larger", "{job}", "--layers", "9", "--dp", "4"), "are two laws of one call"),
        (("--wider", "/no/such/job", "--dp", "4"), "/no/such/job"),
    ],
)
def test_a_wider_capture_that_says_nothing_is_refused(
    job: Path, options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["replan", str(job), *(word.format(job=job) for word in options)]) == 2
    assert sentence in capsys.readouterr().err
