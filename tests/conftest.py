"""Markers, and what is left out where a machine cannot run it."""

from __future__ import annotations

import os

import pytest

from presim.capture.environment import build_shim, find_torch, install_torch, shim_libraries, torch_problem

MARKERS = {
    "torch_cuda": "starts PyTorch's CUDA build on the emulated libraries; skipped where either is missing",
    "slow": "takes more than ten seconds; left out by `make quick`",
}
NEED_ALL = "PRESIM_TESTS_NEED_ALL"  # set by `make test`: there nothing may be skipped for want of a part


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def missing_part() -> str | None:
    """What tests marked torch_cuda lack here, and the command that mends it."""
    if problem := torch_problem(find_torch()):
        return f"{problem}: {install_torch()}"
    return None if shim_libraries() else f"the emulated CUDA libraries are not built: {build_shim()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = missing_part()
    if missing is None:
        return
    if os.environ.get(NEED_ALL):
        pytest.exit(f"some tests cannot run: {missing}", returncode=1)
    for item in items:
        if item.get_closest_marker("torch_cuda"):
            item.add_marker(pytest.mark.skip(reason=missing))
