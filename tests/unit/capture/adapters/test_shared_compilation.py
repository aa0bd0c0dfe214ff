"""Keys of torch.compile's caches hold no index where a rank's own GPU is the only one, and all of them otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

CODE = """
import fcntl, io, os, pickle
import torch
from presim.capture.adapters import shared_compilation
from presim.capture.adapters.shared_compilation import without_index

def pickled_device(device):
    # as PyTorch pickles for keys: without a memo
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream)
    pickler.fast = True
    pickler.dump(device)
    return stream.getvalue()

def key(index, *others):
    device = torch.device("cuda", index)
    return pickle.dumps((f"zeros(3, device={device!r}) on {device}", *others)) + pickled_device(device)

expected = without_index(pickled_device(torch.device("cuda", 0)), 0)
indices = (1, 7, 10, 63)
results["equal keys"] = [without_index(pickled_device(torch.device("cuda", i)), i) == expected for i in indices]
texts = [without_index(f"device(type='cuda', index={i}) cuda:{i}".encode(), i) for i in indices]
results["texts"] = [text.decode() for text in texts]
others = (key(1), key(2) + key(1), b"cuda:2 cuda:1", b"no device")
results["kept"] = [without_index(pickled, 2) == pickled for pickled in others]
results["graphs differ"] = without_index(key(3, "add"), 3) != without_index(key(3, "mul"), 3)

times = iter(range(0, 1000, 6))
with open("PATH_OF_LOCK", "a+") as taken, open("PATH_OF_LOCK", "a+") as wanted:
    fcntl.flock(taken, fcntl.LOCK_EX)
    results["waits for an idle process"] = shared_compilation._take(wanted, lambda: float(next(times)))
    fcntl.flock(taken, fcntl.LOCK_UN)
    results["takes a free lock"] = shared_compilation._take(wanted)
"""


def test_ranks_have_equal_keys_and_wait_for_nobody_who_does_nothing(tmp_path: Path) -> None:
    """A process that holds the lock without computing may wait for this rank in turn."""
    emulated.require_cuda_torch()
    results = emulated.run(CODE.replace("PATH_OF_LOCK", str(tmp_path / "lock")), tmp_path).results
    assert results == {
        "equal keys": [True] * 4,
        "texts": ["device(type='cuda') cuda"] * 4,
        "kept": [True] * 4,
        "graphs differ": True,
        "waits for an idle process": False,
        "takes a free lock": True,
    }
