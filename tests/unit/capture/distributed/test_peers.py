"""Which peers a scout requires to run."""

from __future__ import annotations

from typing import Any

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

CODE = """
from presim.capture.distributed import peers
told = []
watching = peers.Peers(0, [0, 1], told.append)
for ranks in ((0, 1), (2, 3), (0, 2)):
    watching._require(ranks)
results["told"] = [list(ranks) for ranks in told]
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The missing ranks reported for each of these."""
    emulated.require_cuda_torch()
    return emulated.run(CODE, tmp_path_factory.mktemp("peers")).results


def test_only_absent_peers_are_reported(found: dict[str, Any]) -> None:
    assert found["told"] == [[0, 2]]
