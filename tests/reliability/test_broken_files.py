"""Broken files end in one sentence, never in a traceback, and leave nothing half written.

The whole campaign is `validation/reliability.py`; this is a sample of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.reliability.campaign import broken_calls
from support.reliability.kind import Kind
from support.reliability.kinds import KINDS
from support.reliability.mutate import mutate

COUNT = 2


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.needs_torch], ids=lambda kind: kind.name)
def test_a_broken_file_is_answered(kind: Kind, tmp_path: Path) -> None:
    wrong = {name: outcome.wrong for name, outcome in broken_calls(kind, COUNT, tmp_path / "kind") if outcome.wrong}
    assert not wrong


@pytest.mark.torch_cuda
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.needs_torch], ids=lambda kind: kind.name)
def test_a_broken_file_about_a_model_is_answered(kind: Kind, tmp_path: Path) -> None:
    wrong = {name: outcome.wrong for name, outcome in broken_calls(kind, COUNT, tmp_path / "kind") if outcome.wrong}
    assert not wrong


def test_a_seed_breaks_a_file_in_one_way() -> None:
    data = b'{"a": 1, "b": [1, 2, 3]}\n' * 10
    assert mutate(data, "x") == mutate(data, "x")
    assert len({mutate(data, str(seed))[0] for seed in range(50)}) > 40
