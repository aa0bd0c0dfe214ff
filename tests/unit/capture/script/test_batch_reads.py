"""A batch that the model reads again within a step counts once; one tensor in place of many counts each time."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")


def test_a_batch_counts_once_where_the_script_moved_the_parameters_in_between() -> None:
    from presim.capture.script.batch_reads import BatchReads

    reads, batch = BatchReads(), torch.zeros(4)

    def read(is_changed: bool, tensor: Any = batch) -> bool:
        reads.model_called(is_changed)
        return reads.is_again(tensor)

    assert [read(False), read(True), read(False)] == [False, True, True]
    reads.updated()
    assert [read(True), read(False), read(True)] == [False, False, True]
    assert [read(True, torch.ones(4)), read(True)] == [False, False]
    batch += 1
    assert not read(True)
