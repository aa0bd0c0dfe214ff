"""Which ranks exchange as a rank does, and by which names groups are known as pipelines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

NAMES = {
    "mesh_pp": True,
    "PIPELINE_MODEL_PARALLEL_GROUP": True,
    "pipe": True,
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": False,
    "mesh_dp_pp": False,
    "mesh_dp": False,
    "apply": False,
    "": False,
}
MEMBERS = {  # members, rank, peer: who exchanges
    "a group": ([3, 5, 7], 3, 7, [3, 5, 7]),
    "next in a large one": (list(range(0, 300, 3)), 3, 6, list(range(0, 300, 3))),
    "every tenth": (list(range(100)), 42, 52, list(range(2, 100, 10))),
    "itself": (list(range(100)), 42, 42, [42]),
}
CODE = """
from presim.capture.distributed import peers
results["names"] = {name: peers.is_pipeline(name) for name in NAMES}
results["members"] = {name: list(peers._exchanging(*given)) for name, given in MEMBERS.items()}
told = []
watching = peers.Peers(0, [0, 1], told.append)
for ranks in ((0, 1), (2, 3), (0, 2)):
    watching._need(ranks)
results["told"] = [list(ranks) for ranks in told]
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the module says of all of these."""
    emulated.require_cuda_torch()
    given = {name: [members, rank, peer] for name, (members, rank, peer, _) in MEMBERS.items()}
    cases = f"NAMES = {json.dumps(list(NAMES))}\nMEMBERS = {json.dumps(given)}\n"
    return emulated.run(cases + CODE, tmp_path_factory.mktemp("peers")).results


def test_pipelines_are_known_by_their_names(found: dict[str, Any]) -> None:
    assert found["names"] == NAMES


def test_a_small_group_exchanges_whole_and_a_large_one_at_the_same_distance(found: dict[str, Any]) -> None:
    assert found["members"] == {name: expected for name, (*_, expected) in MEMBERS.items()}


def test_ranks_that_lack_each_other_are_told_and_no_others(found: dict[str, Any]) -> None:
    assert found["told"] == [[0, 2]]
