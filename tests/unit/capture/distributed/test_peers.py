"""Which ranks a rank cannot do without."""

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
    watching._need(ranks)
results["told"] = [list(ranks) for ranks in told]
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the module says of all of these."""
    emulated.require_cuda_torch()
    return emulated.run(CODE, tmp_path_factory.mktemp("peers")).results


def test_ranks_that_lack_each_other_are_told_and_no_others(found: dict[str, Any]) -> None:
    assert found["told"] == [[0, 2]]
