"""Misuse of CUDA is reported with the line of the script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.errors import ExitCode
from support.command import presim

pytestmark = pytest.mark.torch_cuda

COPIES = """
import ctypes, torch
cuda = ctypes.CDLL("libcudart.so.13")
host = ctypes.create_string_buffer(8192)
def copy(to, source, size, kind):
    return cuda.cudaMemcpy(ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), kind)
held = torch.zeros(1024, device="cuda")
address = held.data_ptr()
assert copy(address, ctypes.addressof(host), 4096, 1) == 0
copy(address, ctypes.addressof(host), {size}, 1)
{then}
"""
INDICES = """
import torch
from torch import nn
table = torch.zeros(10, 4, device="cuda")
ids = torch.tensor([1, -1, {index}], device="cuda")
labels = torch.tensor([1, -100, {index}], device="cuda")
{line}
torch.ones(4, device="cuda").sum()
"""


def misuse(folder: Path, text: str, *options: str) -> tuple[int, list[str]]:
    """Exit code and reports, without the script's folder."""
    script, report = folder / "train.py", folder / "r.json"
    script.write_text(text)
    ended = presim("run", "--gpu", "h100-sxm", "-q", "--json", report, *options, script)
    result = json.loads(report.read_text())
    assert result["notes"][: len(result["misuse"])] == result["misuse"]
    return ended.returncode, [sentence.replace(f"{folder}/", "") for sentence in result["misuse"]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "then", "reported"),
    [
        ("4096", "", []),
        ("8192", "", ["line 6: a copy of 8192 bytes writes 4096 bytes beyond the end of a block of 4096 bytes"]),
        (
            "4096",
            "del held; copy(ctypes.addressof(host), address, 4096, 2)",
            ["line 6: a copy of 4096 bytes reads a block of 4096 bytes that was freed"],
        ),
    ],
    ids=["within", "beyond", "after free"],
)
def test_copies_must_stay_within_a_live_block(size: str, then: str, reported: list[str], tmp_path: Path) -> None:
    code, found = misuse(tmp_path, COPIES.format(size=size, then=then))
    assert found == [f"Misuse of the GPU at train.py:{one.removeprefix('line ')}." for one in reported]
    assert code == (ExitCode.MISUSE if reported else ExitCode.STANDS)


LOOKUPS = [
    ("nn.functional.embedding(ids.abs(), table)", "aten::index_select"),
    ("table.index_select(0, ids.abs())", "aten::index_select"),
    ("table[ids]", "aten::index"),
    ("table.gather(0, ids.abs()[:, None])", "aten::gather"),
    ("table.index_put_((ids,), torch.ones(3, 4, device='cuda'))", "aten::_index_put_impl_"),
    ("nn.functional.cross_entropy(torch.zeros(3, 10, device='cuda'), labels)", "aten::nll_loss_forward"),
    (
        "nn.functional.cross_entropy(torch.zeros(1, 10, 3, device='cuda'), labels[None])",
        "aten::nll_loss2d_forward",
    ),
    ("nn.functional.embedding_bag(ids.abs()[None], table)", "aten::_embedding_bag_forward_only"),
    ("table.gather(0, ids.abs()[:, None].expand(-1, 4))", "aten::gather"),
    ("table.index_select(0, torch.stack([ids.abs()] * 2, 1)[:, 0])", "aten::index_select"),
    ("table.index_fill_(0, ids, 1)", "aten::index_fill_"),
    ("table[:, 0].take(ids)", "aten::take"),
    ("table.scatter_reduce_(0, ids.abs()[:, None], table + 1, 'sum')", "aten::scatter_reduce_"),
    ("torch.zeros(2, 3, 10, device='cuda')[torch.ones(2, 3, dtype=bool, device='cuda'), ids[2:]]", "aten::index"),
]


def lookups(folder: Path, index: int) -> tuple[int, list[str]]:
    """Run all lookups in one script. The first is on line 7."""
    return misuse(folder, INDICES.format(index=index, line="\n".join(line for line, _ in LOOKUPS)))


def test_indices_within_their_table_are_no_misuse(tmp_path: Path) -> None:
    """Ignored labels and negative indices are valid."""
    assert lookups(tmp_path, 9) == (ExitCode.STANDS, [])


@pytest.fixture(scope="module")
def beyond(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str]]:
    """Each lookup with an index that is one too large."""
    return lookups(tmp_path_factory.mktemp("beyond"), 10)


@pytest.mark.parametrize(("line", "operator"), LOOKUPS)
def test_computed_indices_must_lie_within_their_table(line: str, operator: str, beyond: tuple[int, list[str]]) -> None:
    code, found = beyond
    assert code == ExitCode.MISUSE
    assert len(found) == len(LOOKUPS)
    place = LOOKUPS.index((line, operator))
    assert found[place] == (
        f"Misuse of the GPU at train.py:{7 + place}: {operator} is given index 10 for a dimension of 10, which a GPU "
        "answers with a device-side assert."
    )


REPLAYED = """
import torch
table, ids = torch.zeros(10, 4, device="cuda"), torch.full((3,), 99, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    table.index_select(0, ids)
ids.copy_(torch.tensor([1, 2, 3]))
graph.replay()
"""


@pytest.mark.long
def test_work_captured_into_a_graph_is_not_checked(tmp_path: Path) -> None:
    """Its indices are filled before a replay."""
    assert misuse(tmp_path, REPLAYED) == (ExitCode.STANDS, [])


POOL = """
import ctypes, torch
cuda = ctypes.CDLL("libcudart.so.13")
host, graph, held = ctypes.create_string_buffer(4096), torch.cuda.CUDAGraph(), torch.zeros(1024, device="cuda")
with torch.cuda.graph(graph):
    inner = held * 2
    address = inner.data_ptr()
    del inner
graph.replay()
assert cuda.cudaMemcpy(host, ctypes.c_void_p(address), ctypes.c_size_t(4096), 2) == 0
"""


@pytest.mark.long
def test_blocks_of_a_graph_s_pool_are_not_checked(tmp_path: Path) -> None:
    """Programs keep their addresses between replays."""
    assert misuse(tmp_path, POOL) == (ExitCode.STANDS, [])


@pytest.mark.long
def test_the_sanitizer_is_imported_only_on_request(tmp_path: Path) -> None:
    """Its import alone makes PyTorch call Python at each event."""
    text = "import sys, torch\ntorch.ones(9, device='cuda').sum()\nassert 'torch.cuda._sanitizer' not in sys.modules\n"
    assert misuse(tmp_path, text) == (ExitCode.STANDS, [])


ALLOCATED = """
import ctypes, torch
cuda = ctypes.CDLL("libcudart.so.13")
host, block = ctypes.create_string_buffer(8192), ctypes.c_void_p()
torch.zeros(8, device="cuda").sum()
cuda.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(1000))
cuda.cudaMemcpy(block, host, ctypes.c_size_t(1001), 1)
"""


@pytest.mark.long
def test_copies_must_stay_within_memory_outside_pytorch(tmp_path: Path) -> None:
    code, found = misuse(tmp_path, ALLOCATED)
    expected = "a copy of 1001 bytes writes 1 byte beyond the end of an allocation of 1000 bytes"
    assert (code, found) == (ExitCode.MISUSE, [f"Misuse of the GPU at train.py:7: {expected}."])


STORAGES = """
import torch
weight = torch.zeros(8, 8, device="cuda")
weight.untyped_storage().resize_({bytes})
view = weight.view(64).detach()
view * 2
"""


def test_a_kernel_must_not_use_freed_storage(tmp_path: Path) -> None:
    """Views of it are allowed: FSDP frees gathered parameters between their uses."""
    assert misuse(tmp_path, STORAGES.format(bytes=256)) == (ExitCode.STANDS, [])
    code, found = misuse(tmp_path, STORAGES.format(bytes=0))
    assert code == ExitCode.MISUSE
    assert found == [
        "Misuse of the GPU at train.py:6: aten::mul is given a tensor of 256 bytes whose storage was resized to "
        "nothing, which a GPU answers with an illegal memory access."
    ]


STREAMS = """
import torch
side = torch.cuda.Stream()
data = torch.zeros(1 << 20, device="cuda")
{wait}
with torch.cuda.stream(side):
    data.mul_(2)
"""


def test_missing_stream_synchronisation_is_found_on_request(tmp_path: Path) -> None:
    assert misuse(tmp_path, STREAMS.format(wait="pass")) == (ExitCode.STANDS, [])
    waits = "side.wait_stream(torch.cuda.current_stream())"
    assert misuse(tmp_path, STREAMS.format(wait=waits), "--sanitize") == (ExitCode.STANDS, [])
    code, (found,) = misuse(tmp_path, STREAMS.format(wait="pass"), "--sanitize")
    assert code == ExitCode.MISUSE
    assert found.startswith("Misuse of the GPU at train.py:7: aten::mul_ writes a tensor on stream ")
    assert found.endswith(" without waiting for aten::zeros, which writes it on stream 0.")
