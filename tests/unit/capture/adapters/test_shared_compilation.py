"""Keys of torch.compile's caches hold no index where a rank's own GPU is the only one, and all of them otherwise."""

from __future__ import annotations

import fcntl
import pickle
from pathlib import Path

import pytest
import torch

from presim.capture.adapters import shared_compilation
from presim.capture.adapters.shared_compilation import without_index


def _key(index: int, *others: object) -> bytes:
    device = torch.device("cuda", index)
    return pickle.dumps((f"zeros(3, device={device!r}) on {device}", *others)) + _pickled_device(device)


def _pickled_device(device: torch.device) -> bytes:
    """As PyTorch pickles for keys: without a memo."""
    import io

    stream = io.BytesIO()
    pickler = pickle.Pickler(stream)
    pickler.fast = True
    pickler.dump(device)
    return stream.getvalue()


@pytest.mark.parametrize("index", [1, 7, 10, 63])
def test_ranks_have_equal_keys(index: int) -> None:
    expected = without_index(_pickled_device(torch.device("cuda", 0)), 0)
    assert without_index(_pickled_device(torch.device("cuda", index)), index) == expected
    text = f"device(type='cuda', index={index}) cuda:{index}".encode()
    assert without_index(text, index) == b"device(type='cuda') cuda"


def test_a_graph_that_names_another_gpu_keeps_its_key() -> None:
    for pickled in (_key(1), _key(2) + _key(1), b"cuda:2 cuda:1", b"no device"):
        assert without_index(pickled, 2) == pickled


def test_different_graphs_keep_different_keys() -> None:
    assert without_index(_key(3, "add"), 3) != without_index(_key(3, "mul"), 3)


def test_a_rank_does_not_wait_for_an_idle_process(tmp_path: Path) -> None:
    """It may wait for this rank in turn."""
    times = iter(range(0, 1000, 6))
    with open(tmp_path / "lock", "a+") as taken, open(tmp_path / "lock", "a+") as wanted:
        fcntl.flock(taken, fcntl.LOCK_EX)
        assert not shared_compilation._take(wanted, lambda: float(next(times)))
        fcntl.flock(taken, fcntl.LOCK_UN)
        assert shared_compilation._take(wanted)
