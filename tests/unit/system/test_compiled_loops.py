"""Making machine code of loops, and keeping it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading

import pytest

from presim.system import compiled_loops

FULL_DISK = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"


def run(script: str, cache: pathlib.Path) -> str:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_what_takes_longer_than_loading_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_loops, "_LOADED_WITHIN_S", -1.0)
    monkeypatch.setattr(compiled_loops, "_ASK_EVERY_S", 1e-3)
    sentences, is_announced = list[str](), threading.Event()

    def announce(text: str) -> None:
        sentences.append(text)
        is_announced.set()

    monkeypatch.setattr(compiled_loops, "_announce", [announce])
    with compiled_loops._announced("the loop"):
        assert is_announced.wait(60)
    assert sentences == [
        "compiling the loop for this CPU: seconds to a minute, once; "
        "`presim doctor --prepare` compiles all loops ahead of time"
    ]


def test_what_is_loaded_is_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = list[str]()
    monkeypatch.setattr(compiled_loops, "_announce", [sentences.append])
    with compiled_loops._announced("the loop"):
        pass
    assert not sentences


RECORDS = """
import numpy as np
from presim.system.compiled_loops import compile_for_pointers, has_machine_code
from support import small_record_loop as loop
print(has_machine_code([loop]))
column = np.zeros(1, np.int64)
compile_for_pointers([loop], loop.run, loop.Program(column), loop.State(column))
print(has_machine_code([loop]))
"""

DIVISION = """
import numpy as np
from presim.system.compiled_loops import compile_for_pointers
from support import small_record_loop as loop
column = np.zeros(1, np.int64)
run = compile_for_pointers([loop], loop.divide, loop.Program(column), loop.State(column))
try:
    run(loop.Program(column), loop.State(np.ones(1, np.int64)))
except ArithmeticError as error:
    print(error)
"""
COUNTED = """
import numpy as np
from presim.system import compiled_loops
from support import small_record_loop as loop
make = compiled_loops._object_code
def counted(*arguments):
    print("compiled")
    return make(*arguments)
compiled_loops._object_code = counted
column = np.full(1, 3, np.int64)
run = compiled_loops.compile_for_pointers([loop], loop.run, loop.Program(column), loop.State(column))
print(run(loop.Program(column), loop.State(column + 1)))
"""


def test_whether_machine_code_is_on_disk_is_known_before_compiling(tmp_path: pathlib.Path) -> None:
    assert run(RECORDS, tmp_path) == "False\nTrue\n"
    assert run(RECORDS, tmp_path) == "True\nTrue\n"


def test_a_machine_that_can_keep_no_machine_code_is_told_apart(tmp_path: pathlib.Path) -> None:
    no_folder = tmp_path / "file"
    no_folder.touch()
    assert run(RECORDS, no_folder / "folder") == "None\nNone\n"


def test_code_that_cannot_be_written_runs_all_the_same(tmp_path: pathlib.Path) -> None:
    assert run(FULL_DISK + RECORDS, tmp_path) == "False\nFalse\n"
    assert not list(tmp_path.rglob("*.o"))


def test_a_division_by_zero_in_machine_code_raises(tmp_path: pathlib.Path) -> None:
    assert run(DIVISION, tmp_path).startswith("the compiled loop ended with status")


def test_processes_that_need_the_same_code_compile_it_once(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COUNTED]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate()[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert sorted(outputs) == ["7\n", "7\n", "compiled\n7\n"]
