"""A batch that the model reads again within a step counts once; one tensor in place of many counts each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

CODE = """
import torch
from presim.capture.script.batch_reads import BatchReads

reads, batch = BatchReads(), torch.zeros(4)

def read(is_changed, tensor=batch):
    reads.model_called(is_changed)
    return reads.is_again(tensor)

results["first step"] = [read(False), read(True), read(False)]
reads.updated()
results["second step"] = [read(True), read(False), read(True)]
results["another batch"] = [read(True, torch.ones(4)), read(True)]
batch += 1
results["new values"] = read(True)
"""


def test_a_batch_counts_once_where_the_script_moved_the_parameters_in_between(tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    results = emulated.run(CODE, tmp_path).results
    assert results["first step"] == [False, True, True]
    assert results["second step"] == [False, False, True]
    assert results["another batch"] == [False, False]
    assert not results["new values"]
