"""What a kept capture goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.capture_job import OLDEST_CAPABILITY
from presim.hardware import choose_cluster
from presim_study import captures


def test_a_capture_goes_by_the_recipe_and_what_it_imports_in_turn_and_by_no_other_file(tmp_path: Path) -> None:
    files = {
        "train.py": "import torch\nimport layers  # noqa: E402\n",
        "layers.py": "from parts import norm\nimport train\n",
        "parts.py": "norm = 1\n",
        "train_other.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert captures._texts(tmp_path / "train.py") == [files[name] for name in ("layers.py", "parts.py", "train.py")]


@pytest.mark.parametrize("name", ["v100-32gb-pcie", "p100-pcie"])
def test_a_gpu_too_old_for_pytorchs_builds_is_captured_on_the_oldest_they_have_code_for(name: str) -> None:
    cluster = choose_cluster(gpu=name, nodes=2, gpus_per_node=4)
    stands_in = captures.emulated(cluster)
    assert (stands_in.gpu.compute_major, stands_in.gpu.compute_minor) == OLDEST_CAPABILITY
    assert stands_in.gpu.memory_bytes == cluster.gpu.memory_bytes
    assert (stands_in.nodes, stands_in.gpus_per_node, stands_in.node) == (2, 4, cluster.node)


def test_any_other_gpu_is_captured_as_it_is() -> None:
    cluster = choose_cluster(gpu="t4")
    assert captures.emulated(cluster) is cluster
