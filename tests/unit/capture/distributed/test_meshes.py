"""Meshes whose dimensions are recorded, because PyTorch's default group does not tell what they are for."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist

from presim.capture.distributed import process_groups


class RecordedNames:
    """What stands for the recorder."""

    def __init__(self) -> None:
        self.dimensions: list[str] = []

    def record_mesh(self, dimension: str) -> None:
        self.dimensions.append(dimension)


@pytest.mark.torch_cuda
@pytest.mark.parametrize(
    ("sizes", "names", "recorded"),
    [
        ((8,), ("tp",), ["tp"]),
        ((1, 8), ("dp", "cp"), ["cp"]),
        ((2, 4), ("dp", "tp"), []),  # these have groups of their own, with names
        ((8,), ("fsdp",), []),
        ((8,), None, []),
    ],
)
def test_a_dimension_that_splits_the_model_over_all_ranks_is_recorded(
    sizes: tuple[int, ...], names: tuple[str, ...] | None, recorded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mesh:
        def __init__(self, sizes: tuple[int, ...], mesh_dim_names: tuple[str, ...] | None) -> None:
            self.sizes, self.mesh_dim_names = sizes, mesh_dim_names

        def size(self, dimension: int) -> int:
            return self.sizes[dimension]

    hook: Any = RecordedNames()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 8)
    process_groups._record_meshes(Mesh, hook)
    Mesh(sizes, names)
    assert hook.dimensions == recorded
