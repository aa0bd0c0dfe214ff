"""Finished trials outlive the search; a study that is another's, broken or in use is refused in a sentence."""

from __future__ import annotations

import dataclasses
import fcntl
import re
from pathlib import Path

import optuna
import pytest

from presim.errors import InputError
from presim.planner.objectives import OBJECTIVES
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.trials.storage import NAME, open_study
from presim.planner.trials.trial import Trial
from support.searching import figures

SPACE = Space({"tensor": (1, 2, 4), "reshard": (True, False), "recompute": ("none", "full")}, {"sequence": 64})


def request(study: object) -> SearchRequest:
    return SearchRequest(
        subject="model", space=SPACE, objectives=[OBJECTIVES["step_time"]], graph=b"graph", study=str(study)
    )


def trials() -> list[Trial]:
    """One for each point: priced, and every third failed."""
    return [
        Trial(number=number, point=point, fate="failed", words="it broke")
        if number % 3 == 2
        else Trial(number=number, point=point, fate="priced", figures=figures(1.0 + number))
        for number, point in enumerate(SPACE)
    ]


@pytest.mark.parametrize("name", ["study.journal", "sqlite"])
def test_a_study_gives_back_what_it_was_given(name: str, tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path / 'study.db'}" if name == "sqlite" else tmp_path / name
    for trial in trials()[:4] if name == "sqlite" else trials():
        with open_study(request(where)) as kept:
            assert kept.find(trial.point) is None
            kept.add(trial)
    with open_study(request(where)) as kept:
        for trial in trials()[: len(kept)]:
            assert kept.find(trial.point) == trial
        assert len(kept) >= 4


def test_the_study_names_its_objectives(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path / 'study.db'}"
    with open_study(request(where)):
        pass
    assert optuna.load_study(study_name=NAME, storage=where).metric_names == ["step_time"]


def test_a_last_line_that_was_not_written_whole_loses_only_itself(tmp_path: Path) -> None:
    where = tmp_path / "study"
    first, second = trials()[:2]
    for trial in (first, second):
        with open_study(request(where)) as kept:
            kept.add(trial)
    where.write_bytes(where.read_bytes()[:-40])
    (tmp_path / "study.lock").symlink_to(where)
    with open_study(request(where)) as kept:
        assert kept.find(first.point) == first
        assert kept.find(second.point) is None
        kept.add(second)
    with open_study(request(where)) as kept:
        assert kept.find(second.point) == second


def test_two_searches_on_one_study_are_refused(tmp_path: Path) -> None:
    where = tmp_path / "study"
    with where.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=r"another search is using the study .*study: wait for it"):
            open_study(request(where)).__enter__()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"subject": "another"}, "was made for model, not another: name another one with --study"),
        ({"graph": b"other"}, "was made for another model, command or cluster ("),
        ({"space": Space({"tensor": (1, 2)}, {})}, "was made for another space ("),
        ({"objectives": [OBJECTIVES["gpus"]]}, "was made for step_time, not gpus: name another one with --study"),
    ],
)
def test_a_study_of_another_search_is_refused(change: dict[str, object], sentence: str, tmp_path: Path) -> None:
    where = tmp_path / "study"
    with open_study(request(where)) as kept:
        kept.add(trials()[0])
    with pytest.raises(InputError, match=re.escape(sentence)):
        open_study(dataclasses.replace(request(where), **change)).__enter__()  # type: ignore[arg-type]


def test_what_is_no_study_is_refused(tmp_path: Path) -> None:
    broken, foreign = tmp_path / "broken", tmp_path / "foreign"
    broken.write_text("{ this is\nno journal\n")
    with pytest.raises(InputError, match="cannot be read as a study"):
        open_study(request(broken)).__enter__()
    from optuna import create_study
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    study = create_study(storage=JournalStorage(JournalFileBackend(str(foreign))), study_name="presim search")
    study.add_trial(study.ask() and __import__("optuna").create_trial(value=1.0))
    with pytest.raises(InputError, match="is a study of another program; name another one with --study"):
        open_study(request(foreign)).__enter__()
