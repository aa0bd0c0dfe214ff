"""Machine code of a wheel: used where no code for the very CPU is kept, and only by CPUs that can run it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from presim.system.machine_code import PORTABLE_FEATURES, portable_variables, runs_portable_code

COMPILE = """
import numpy as np
from presim.system.compiled_loops import compile_for_pointers
from support import small_record_loop as loop
column = np.full(1, 3, np.int64)
compile_for_pointers([loop], loop.run, loop.Program(column), loop.State(column))
"""
USE = """
import pathlib, sys
import numpy as np
from presim.system import machine_code
from presim.system.compiled_loops import compile_for_pointers, has_machine_code
from support import small_record_loop as loop
machine_code._WHEEL_FOLDER = pathlib.Path(sys.argv[1])
lacking = sys.argv[2]
features = machine_code._host_features()
machine_code._host_features = lambda: {**features, lacking: False}
column = np.full(1, 3, np.int64)
print(has_machine_code([loop]))
if has_machine_code([loop]):
    run = compile_for_pointers([loop], loop.run, loop.Program(column), loop.State(column))
    print(run(loop.Program(column), loop.State(column + 1)), "numba" in sys.modules)
"""


def python(script: str, *arguments: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), **variables}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_code_of_a_wheel_is_used_without_numba_by_cpus_that_can_run_it(tmp_path: pathlib.Path) -> None:
    wheel, cache = tmp_path / "wheel", tmp_path / "cache"
    wheel.mkdir()
    python(COMPILE, **portable_variables(wheel))
    assert [file.name.rpartition(".x86-64-v3")[2] for file in wheel.iterdir()] == [".o"]
    assert python(USE, str(wheel), "none", NUMBA_CACHE_DIR=str(cache)) == "True\n7 False\n"
    assert python(USE, str(wheel), "avx2", NUMBA_CACHE_DIR=str(cache)) == "False\n"
    assert not list(cache.glob("*.o"))


def test_a_cpu_without_one_of_the_features_runs_no_code_of_a_wheel() -> None:
    features = dict.fromkeys(PORTABLE_FEATURES, True)
    assert runs_portable_code({**features, "avx512f": False})
    assert not runs_portable_code({**features, "fma": False})
    assert not runs_portable_code({})
