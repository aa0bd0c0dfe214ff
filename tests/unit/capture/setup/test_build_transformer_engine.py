"""A wheel of Transformer Engine that is compiled for tests is kept apart and has no optimised code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from presim.capture.setup.build_transformer_engine import TRANSFORMER_ENGINE, _unoptimised_compiler, find_wheel
from presim.capture.setup.environment import Torch

TORCH = Torch(Path("/site/torch"), "2.14.0+cu130", "13.0")


def test_a_wheel_for_tests_is_not_found_for_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path))
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    folder = tmp_path / "wheels" / "torch-2.14.0+cu130-unoptimised"
    folder.mkdir(parents=True)
    wheel = folder / f"transformer_engine_torch-{TRANSFORMER_ENGINE}-{python}-{python}-linux_x86_64.whl"
    wheel.touch()
    assert find_wheel(TORCH) is None
    assert find_wheel(TORCH, optimised=False) == wheel


def test_the_compiler_s_last_word_is_not_to_optimise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build's own options have -O3; the last of such options counts."""
    compiler = _unoptimised_compiler(tmp_path)
    (tmp_path / "c++").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    ended = subprocess.run([compiler, "-O3", "a.cpp"], capture_output=True, text=True, check=True)
    assert ended.stdout == "-O3 a.cpp -O0\n"
