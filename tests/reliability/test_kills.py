"""A verb that is killed loses nothing that was finished, and leaves no half-written output behind."""

from __future__ import annotations

import contextlib
import io
import shutil
import signal
from pathlib import Path

import pytest

from presim.cli import main
from support.long_cases import marked
from support.reliability import signals, writing_verbs
from support.reliability.kills import changes, killed
from support.reliability.kinds import KINDS

POINTS = 4
VERBS = {
    "simulate": ("job", "simulate job --json out.json --html out.html -q"),
    "report": ("result", "report result.json --html out.html"),
    "profile": ("profiler trace", "profile --import run.json --out prices -q"),
    "fit": ("nccl-tests log", "fit --nccl-tests all_gather-8.log --out c.toml -q"),
    "validate": ("cases", "validate cases.csv --out p.csv --report p.md"),
    "gate": ("budgets", "gate budgets.toml --junit j.xml --markdown m.md --keep kept -q"),
}


@pytest.mark.parametrize("verb", marked(VERBS, ["gate"]))
def test_a_killed_verb_leaves_whole_files(verb: str, tmp_path: Path) -> None:
    """Each output is what an undisturbed call writes, or is not there; the next call makes the rest."""
    kind, words = VERBS[verb]
    good, whole = tmp_path / "good", tmp_path / "whole"
    good.mkdir()
    with contextlib.redirect_stdout(io.StringIO()):
        next(each for each in KINDS if each.name == kind).make(good)
    shutil.copytree(good, tmp_path / "imported")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(tmp_path / "imported"):
        main.run(words.split())  # what it imports is imported in all calls: compiled loops look for their cache
    shutil.copytree(good, whole)
    points = changes(words.split(), whole)
    expected = _files(whole)
    assert expected.keys() > _files(good).keys()
    for point in range(0, points, max(points // POINTS, 1)):
        folder = tmp_path / f"killed{point}"
        shutil.copytree(good, folder)
        assert killed(words.split(), folder, point)
        found = {name: data for name, data in _files(folder).items() if not Path(name).name.startswith(".presim-")}
        assert all(data == expected[name] or _is_progress(name, data, expected[name]) for name, data in found.items())
        with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
            main.run(words.split())
        assert {name: data for name, data in _files(folder).items() if name in expected} == expected


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param("report", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("network", signal.SIGTERM, marks=pytest.mark.long),
        ("fit", signal.SIGHUP),
    ],
)
def test_a_signal_ends_a_verb_in_a_sentence(name: str, number: signal.Signals, tmp_path: Path) -> None:
    """From its first millisecond to its last, with whole outputs; the whole campaign is `validation/kills.py`."""
    verb = next(verb for verb in writing_verbs.VERBS if verb.name == name)
    inputs = writing_verbs.prepared(verb, tmp_path / "inputs")
    whole = signals.undisturbed(verb, inputs, tmp_path / "whole", fork=False)
    for share in (0.3, 0.6, 0.97):
        moment = share * whole.seconds
        judged = signals.judged(verb, inputs, tmp_path / "ended", number, moment, whole)
        assert judged in ("", signals.BEFORE_PRESIM)


def _is_progress(name: str, data: bytes, whole: bytes) -> bool:
    """A table that is written case by case has the first of its rows."""
    return name.endswith(".csv") and whole.startswith(data)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
