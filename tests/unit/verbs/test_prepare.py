"""A process that answers many questions uses the compiled loops from its first small job on."""

from __future__ import annotations

import pytest

from presim.composition import allocator
from presim.engine import loop_choice
from presim.verbs.prepare import prefer_compiled_steps


def test_loops_are_loaded_and_used_for_small_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded_loops: list[str] = []
    monkeypatch.delenv("PRESIM_ENGINE", raising=False)
    monkeypatch.setattr(loop_choice, "compiled_run", lambda: loaded_loops.append("engine"))
    monkeypatch.setattr(allocator, "compiled", lambda: loaded_loops.append("allocator"))
    monkeypatch.setattr(loop_choice.InterpretedOps, "count", 0)
    monkeypatch.setattr(allocator._ReplayedEntries, "entries", 0)
    assert not loop_choice.is_compiled(None, 1)
    prefer_compiled_steps()
    assert loaded_loops == ["engine", "allocator"]
    assert loop_choice.is_compiled(None, 1)
