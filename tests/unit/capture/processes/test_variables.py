"""The environment of a rank's process."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.launchers.launch import Worker, torchrun_variables
from presim.capture.processes import variables

LIBRARIES = [Path("/shim/libpresim_shim.so"), Path("/shim/libcuda.so.1")]


def environment(rank: int = 0, world_size: int = 1, per_node: int = 8) -> dict[str, str]:
    return variables.environment(
        LIBRARIES, Path("/log/device"), Path("/log"), torchrun_variables(Worker(rank, world_size, per_node, 29400))
    )


@pytest.mark.parametrize(
    ("rank", "world_size", "per_node", "local", "node", "nodes", "local_world"),
    [
        (0, 1, 8, 0, 0, 1, 1),
        (7, 8, 8, 7, 0, 1, 8),
        (13, 128, 8, 5, 1, 16, 8),
        (16383, 16384, 8, 7, 2047, 2048, 8),
        (3, 4, 1, 0, 3, 4, 1),
    ],
)
def test_a_rank_gets_the_variables_of_torchrun(
    rank: int, world_size: int, per_node: int, local: int, node: int, nodes: int, local_world: int
) -> None:
    found = environment(rank, world_size, per_node)
    wanted = {
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": local,
        "LOCAL_WORLD_SIZE": local_world,
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": nodes,
        "MASTER_PORT": 29400,
    }
    assert {name: found[name] for name in wanted} == {name: str(value) for name, value in wanted.items()}
    assert found["MASTER_ADDR"] == "127.0.0.1"


def test_the_shim_is_preloaded_before_the_user_s_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/mine.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    found = environment()
    assert found["LD_PRELOAD"] == "/shim/libpresim_shim.so:/shim/libcuda.so.1:/mine.so"
    assert found["LD_LIBRARY_PATH"] == "/shim:/mine"


def test_empty_search_paths_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty entry would mean the working directory."""
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, "")
    found = environment()
    assert not any("" in found[name].split(":") for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH"))


def test_cuda_visible_devices_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert "CUDA_VISIBLE_DEVICES" not in environment()


def test_omp_threads_are_as_with_torchrun_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert environment()["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert environment()["OMP_NUM_THREADS"] == "4"


@pytest.mark.parametrize(("cores", "said", "found"), [(2, None, "1"), (64, None, None), (2, "4", "4")])
def test_a_small_machine_compiles_in_the_rank_s_process(
    cores: int, said: str | None, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    if said:
        monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", said)
    assert environment().get("TORCHINDUCTOR_COMPILE_THREADS") == found
