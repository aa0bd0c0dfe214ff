"""When the machine code of the scheduler's loop is made, and by whom."""

from __future__ import annotations

import multiprocessing
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from presim.serving.fast import compiled_scheduler
from presim.system import compiled_loops


class Compiler:
    """A process that has ended once it has been asked twice; keeps the commands of all."""

    commands: list[list[str]] = []  # noqa: RUF012 - of the class, which stands for starting a process

    def __init__(self, command: list[str], **options: Any) -> None:
        assert options["start_new_session"], "an interrupt of the verb must not end it"
        self.commands.append(command)
        self.answers = iter([None, None, 0, 0])
        self.is_killed = False

    def poll(self) -> int | None:
        return next(self.answers)

    def kill(self) -> None:
        self.is_killed = True

    def wait(self) -> int:
        assert self.is_killed
        return -9


@pytest.fixture(autouse=True)
def sentences(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """No process is started, and what is announced is kept."""
    announced: list[str] = []
    monkeypatch.setattr(compiled_loops, "_announce", [announced.append])
    monkeypatch.setattr(subprocess, "Popen", Compiler)
    monkeypatch.setattr(Compiler, "commands", [])
    compiled_scheduler._compilation.cache_clear()
    compiled_loops.in_background.clear()
    yield announced
    compiled_scheduler._compilation.cache_clear()
    compiled_loops.in_background.clear()


def test_missing_machine_code_is_made_once_by_another_process(
    sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_scheduler, "has_machine_code", lambda modules: False)
    assert [compiled_scheduler.is_compiling() for _ in range(4)] == [True, True, False, False]
    assert len(Compiler.commands) == 1
    assert "compiled_run()" in Compiler.commands[0][-1]
    assert sentences == [
        "compiling the serving scheduler for this CPU, once, for about a minute, beside and after this verb; "
        "meanwhile it runs uncompiled. `presim doctor --prepare` compiles all loops ahead of time"
    ]


def test_an_interrupted_verb_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_scheduler, "has_machine_code", lambda modules: False)
    assert compiled_scheduler.is_compiling()
    (compilation,) = compiled_loops.in_background
    assert isinstance(compilation, Compiler)
    compiled_loops.end_background()
    assert compilation.is_killed
    assert not compiled_loops.in_background


def test_a_process_of_a_pool_compiles_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_scheduler, "has_machine_code", lambda modules: False)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "a pool's")
    assert not compiled_scheduler.is_compiling()
    assert Compiler.commands == []


@pytest.mark.parametrize("kept", [True, None])
def test_machine_code_that_is_there_or_cannot_be_kept_is_not_made_elsewhere(
    kept: bool | None, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_scheduler, "has_machine_code", lambda modules: kept)
    assert not compiled_scheduler.is_compiling()
    assert (Compiler.commands, sentences) == ([], [])
