"""Markers, and what is left out where a machine cannot run it."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

from presim.capture.setup.environment import find_torch, install_torch, torch_problem
from presim.capture.setup.shim import build_shim, shim_libraries
from support import preloaded
from support.export_server import forked
from support.long_cases import examples
from support.slow_tests import SLOW_S, read_durations

MARKERS = {
    "torch_cuda": "starts PyTorch's CUDA build on the emulated libraries; skipped where either is missing",
    "needs(package, ...)": "runs frameworks that `make frameworks` or a target of their own installs",
    "slow": "took more than 0.2 s (`tests/slow_tests.txt`); left out by `make quick`",
    "long": "left to `make test-long`: run by hand before a release",
}
RAY = "pip install --constraint requirements/constraints.txt ray"
TOO_LARGE = {"vllm": "make vllm", "sglang": "make sglang", "ray": RAY}  # to be asked of every machine
NEED_ALL = "PRESIM_TESTS_NEED_ALL"  # set by `make test`: there nothing may be skipped for want of a part
SHARE_CAPTURES = {  # files that ask for the same captures or syntax trees run in one worker, which keeps them
    "tests/integration/test_composed.py": "tests/integration/test_llama.py",
    "tests/integration/test_every_capture.py": "tests/integration/test_llama.py",
    "tests/integration/test_gpt2_ddp.py": "tests/integration/test_llama.py",
    "tests/integration/test_live.py": "tests/integration/test_llama.py",
    "tests/integration/test_out_of_memory.py": "tests/integration/test_llama.py",
    "tests/integration/test_vit.py": "tests/integration/test_llama.py",
    "tests/unit/system/files/test_field_bounds.py": "tests/unit/test_imports.py",
    "tests/unit/system/files/test_only_here.py": "tests/unit/test_imports.py",
    "tests/unit/test_names.py": "tests/unit/test_imports.py",
}

# Without compiled modules on disk, each process that a test starts would compile presim's modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes is the machine's affair, which may be busy. `make test` tries the same ones every time.
hypothesis.settings.register_profile(
    "presim",
    deadline=None,
    derandomize=NEED_ALL in os.environ,
    max_examples=examples(40),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("presim")


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


@pytest.fixture(scope="session", autouse=True)
def _preloaded_captures() -> None:
    preloaded.install()


@pytest.fixture(scope="session", autouse=True)
def _forked_exports() -> Iterator[None]:
    from presim.composition.graph import take
    from presim.composition.models import describe_model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(describe_model, "run_exporter", forked(take.run_exporter))
        patch.setattr(take, "run_exporter", forked(take.run_exporter))
        yield


@functools.cache
def missing_part() -> str | None:
    """What tests marked torch_cuda lack here, and the command that mends it."""
    if problem := torch_problem(find_torch()):
        return f"{problem}: {install_torch()}"
    return None if shim_libraries() else f"the emulated CUDA libraries are not built: {build_shim()}"


def missing_package(item: pytest.Item) -> str | None:
    """A package that a test marked with needs() lacks, or None."""
    packages = [name for mark in item.iter_markers("needs") for name in mark.args]
    return next((name for name in packages if not _is_installed(name)), None)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # nor what it is a part of
        return False


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that lacks something is skipped, or fails where nothing may be missing."""
    package = missing_package(item)
    if package in TOO_LARGE:
        pytest.skip(f"{package} is not installed: {TOO_LARGE[package]}")
    lacks = f"{package} is not installed: make frameworks" if package else None
    if item.get_closest_marker("torch_cuda"):
        lacks = missing_part() or lacks
    if lacks:
        (pytest.fail if os.environ.get(NEED_ALL) else pytest.skip)(lacks)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Workers inherit the server whose forks captures are, so that it imports PyTorch once for all."""
    os.environ[preloaded.SERVER] = preloaded.start_server()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file go to one worker, in the order of their collection (`pytest_collection_modifyitems`)."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return SHARE_CAPTURES.get(file, file)

    config.option.loadscopereorder = False
    return Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    durations_s = read_durations()
    for item in items:
        if durations_s.get(item.nodeid, 0.0) > SLOW_S:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: "/integration/" not in item.nodeid)  # the longest first, so that workers end together
