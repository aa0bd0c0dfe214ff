"""A signal at any moment ends a verb in a sentence with its exit code, and what is finished is written, marked."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.reliability.moments import CASES, Moment, ended_at, is_marked

QUICK = ("deploy", "validate", "simulate", "training")  # ended by all signals


def _cases() -> list[object]:
    marked = []
    for moment in CASES:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if moment.name in QUICK else (signal.SIGTERM,):
            marks = [pytest.mark.torch_cuda] if moment.torch else []
            marked.append(pytest.param(moment, number, id=f"{moment.name}-{number.name}", marks=marks))
    return marked


@pytest.mark.parametrize(("moment", "number"), _cases())
def test_a_signal_ends_a_verb_with_what_it_has(moment: Moment, number: signal.Signals, tmp_path: Path) -> None:
    ended = ended_at(moment, tmp_path / "work", number)
    assert (ended.code, ended.errors.lstrip("\n")) == (128 + number, moment.errors), ended.errors
    assert moment.printed in " ".join(ended.printed.split())
    assert set(ended.files) == set(moment.outputs)
    assert all(is_marked(name, content) for name, content in ended.files.items() if name not in moment.whole)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(("presim-", "pymp-"))]
