"""Meshes whose dimensions are recorded, because PyTorch's default group does not tell what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

CODE = """
import torch.distributed as dist
from presim.capture.distributed import process_groups

dist.is_initialized, dist.get_world_size = (lambda: True), (lambda: 8)

class Recorder:
    def __init__(self):
        self.dimensions = []
    def record_mesh(self, dimension):
        self.dimensions.append(dimension)

def recorded(sizes, names):
    class Mesh:
        def __init__(self, sizes, mesh_dim_names):
            self.sizes, self.mesh_dim_names = sizes, mesh_dim_names
        def size(self, dimension):
            return self.sizes[dimension]
    recorder = Recorder()
    process_groups._record_meshes(Mesh, recorder)
    Mesh(sizes, names)
    return recorder.dimensions

results["tp"] = recorded((8,), ("tp",))
results["dp, cp"] = recorded((1, 8), ("dp", "cp"))
results["dp, tp"] = recorded((2, 4), ("dp", "tp"))
results["fsdp"] = recorded((8,), ("fsdp",))
results["no names"] = recorded((8,), None)
"""


@pytest.mark.torch_cuda
def test_a_dimension_that_splits_the_model_over_all_ranks_is_recorded(tmp_path: Path) -> None:
    """Dimensions of several have groups of their own, with names."""
    results = emulated.run(CODE, tmp_path).results
    assert results == {"tp": ["tp"], "dp, cp": ["cp"], "dp, tp": [], "fsdp": [], "no names": []}
