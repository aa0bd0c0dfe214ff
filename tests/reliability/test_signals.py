"""A signal at any moment ends a verb in a sentence with its exit code, and what is finished is written, marked."""

from __future__ import annotations

import importlib
import operator
import re
import signal
from pathlib import Path

import pytest

from support.reliability.moments import CASES, Moment, ended_at, is_marked

ALL_SIGNALS = ("deploy", "validate", "simulate", "training")
LONG = (  # each loses or keeps what another does, which is quicker
    *("search", "deploy, while simulating", "validate serving", "compose", "run --draws"),
    *("run, while it simulates", "run --save, while it simulates", "run, while it compares ranks"),
    *("training, none simulated", "explain, before any candidate", "import, while it simulates"),
)
_PROGRESS = re.compile(r"presim: .* \(\d+ s\)")  # of what takes more than ten seconds
LONG_SIGNALS = ("deploy", "validate", "training")  # of which only SIGTERM is sent by default


def _cases() -> list[object]:
    marked = []
    for moment in CASES:
        more = (signal.SIGINT, signal.SIGHUP) if moment.name in ALL_SIGNALS else ()
        for number in (signal.SIGTERM, *more):
            marks = [pytest.mark.torch_cuda] if moment.torch else []
            if moment.name in LONG or (moment.name in LONG_SIGNALS and number in more):
                marks.append(pytest.mark.long)
            marked.append(pytest.param(moment, number, id=f"{moment.name}-{number.name}", marks=marks))
    return marked


@pytest.mark.parametrize(("moment", "number"), _cases())
def test_a_signal_ends_a_verb_with_what_it_has(moment: Moment, number: signal.Signals, tmp_path: Path) -> None:
    ended = ended_at(moment, tmp_path / "work", number)
    *progress, last = ended.errors.splitlines()
    assert (ended.code, f"{last}\n") == (128 + number, moment.errors), ended.errors
    assert all(not line or _PROGRESS.fullmatch(line) for line in progress), ended.errors
    assert moment.printed in " ".join(ended.printed.split())
    assert set(ended.files) == set(moment.outputs)
    assert all(is_marked(name, content) for name, content in ended.files.items() if name not in moment.whole)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(("presim-", "pymp-"))]


@pytest.mark.parametrize("moment", CASES, ids=lambda moment: moment.name)
def test_each_moment_is_a_function_of_presim(moment: Moment) -> None:
    module, _, path = moment.function.partition(":")
    assert callable(operator.attrgetter(path)(importlib.import_module(module)))
