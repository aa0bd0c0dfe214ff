"""A vLLM engine that would start its own workers uses presim's ranks."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from presim.capture.adapters import vllm_workers


@dataclasses.dataclass
class EngineArgs:
    """The part of vLLM's arguments that is used."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    distributed_executor_backend: Any = None

    def create_engine_config(self) -> Any:
        return self.distributed_executor_backend


class RefusedError(Exception):
    """Raised for a refusal."""


def refuse(sentence: str) -> NoReturn:
    raise RefusedError(sentence)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a job of four ranks."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", SimpleNamespace(EngineArgs=EngineArgs))
    monkeypatch.setattr(EngineArgs, "create_engine_config", EngineArgs.create_engine_config)
    vllm_workers.install(refuse)


@pytest.mark.parametrize("backend", [None, "mp", "ray"])
def test_the_engine_uses_the_existing_ranks(backend: str | None) -> None:
    arguments = EngineArgs(tensor_parallel_size=2, pipeline_parallel_size=2, distributed_executor_backend=backend)
    assert arguments.create_engine_config() == "external_launcher"


@pytest.mark.parametrize("backend", ["uni", "external_launcher", EngineArgs])
def test_an_executor_that_starts_no_workers_is_kept(backend: Any) -> None:
    assert EngineArgs(4, distributed_executor_backend=backend).create_engine_config() is backend


def test_an_engine_on_one_gpu_is_unchanged() -> None:
    assert EngineArgs().create_engine_config() is None


def test_another_number_of_gpus_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"runs on 8 GPUs, .* presim runs 4 ranks: use --nodes 1 --gpus-per-node 8"):
        EngineArgs(tensor_parallel_size=8).create_engine_config()
