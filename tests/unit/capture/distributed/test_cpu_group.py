"""CPU groups: two of four ranks run, and each represents itself and one absent rank."""

from __future__ import annotations

from typing import Any

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

CODE = """
import threading
from types import SimpleNamespace
import torch
from torch.distributed import HashStore, ReduceOp
from presim.capture.distributed.cpu_group import CpuGroup
from presim.trace.representatives import Representatives

store = HashStore()
known = Representatives([0, 2], {0: [1], 2: [3]})
groups = {rank: CpuGroup(store, rank, range(4), known) for rank in (0, 2)}

def on_both(call):
    # What ranks 0 and 2, which run at once, are left with: 1 and 3 before, twice each.
    left = {}
    def run(rank):
        mine = torch.full((2,), rank + 1.0)
        found = call(groups[rank], rank, mine)
        left[rank] = (mine if found is None else found).tolist()
    threads = [threading.Thread(target=run, args=(rank,)) for rank in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [left[0], left[2]]

for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
    opts = SimpleNamespace(reduceOp=getattr(ReduceOp, name))
    results[name] = on_both(lambda group, rank, mine: group.allreduce([mine], opts) and None)

def rooted(root, **more):
    return SimpleNamespace(rootRank=root, **more)

results["reduce"] = on_both(lambda g, rank, mine: g.reduce([mine], rooted(2, reduceOp=ReduceOp.SUM)) and None)
for root in (2, 3):
    results[f"broadcast {root}"] = on_both(lambda g, rank, mine: g.broadcast([mine], rooted(root)) and None)

def four(): return [torch.zeros(2) for _ in range(4)]
def parts(rank): return [torch.full((2,), 10.0 * rank + member) for member in range(4)]

def allgather(g, rank, mine):
    out = four(); g.allgather([out], [mine]); return torch.stack(out)[:, 0]
def gather(g, rank, mine):
    out = four(); g.gather([out], [mine], rooted(0)); return torch.stack(out)[:, 0]
def scatter(g, rank, mine):
    out = torch.zeros(2); g.scatter([out], [parts(rank)], rooted(2)); return out
def scatter_from_absent(g, rank, mine):
    g.scatter([mine], [parts(rank)], rooted(3))
def reduce_scatter(g, rank, mine):
    out = torch.zeros(2); g.reduce_scatter([out], [parts(rank)], SimpleNamespace(reduceOp=ReduceOp.SUM)); return out
def alltoall(g, rank, mine):
    out = four(); g.alltoall(out, parts(rank)); return torch.stack(out)[:, 0]
def message(g, rank, mine):
    g.send([mine], 2, 7) if rank == 0 else g.recv([mine], 0, 7).wait()
def message_of_absent(g, rank, mine):
    g.recv([mine], 1, 7).wait()
def exchange(g, rank, mine):
    other = torch.zeros(2)
    asked = g.recv([other], 2 - rank, 8)
    g.send([mine], 2 - rank, 8)
    asked.wait()
    return other
def exchange_with_absent(g, rank, mine):
    other = torch.zeros(2)
    asked = g.recv([other], 3, 8)
    g.send([mine], 3, 8)
    return asked.get_future().value()[0]

for call in (allgather, gather, scatter, scatter_from_absent, reduce_scatter, alltoall, message, message_of_absent,
             exchange, exchange_with_absent):
    results[call.__name__] = on_both(call)
results["barrier"] = on_both(lambda group, rank, mine: group.barrier() and None)
"""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Call -> the tensors of ranks 0 and 2 after it."""
    emulated.require_cuda_torch()
    return emulated.run(CODE, tmp_path_factory.mktemp("group")).results


@pytest.mark.parametrize(
    ("operation", "expected"), [("SUM", 8.0), ("AVG", 2.0), ("PRODUCT", 9.0), ("MIN", 1.0), ("MAX", 3.0)]
)
def test_a_reduction_weights_each_rank_by_the_ranks_it_represents(
    left: dict[str, Any], operation: str, expected: float
) -> None:
    assert left[operation] == [[expected] * 2] * 2


def test_only_the_root_gets_the_sum(left: dict[str, Any]) -> None:
    assert left["reduce"] == [[1.0, 1.0], [8.0, 8.0]]


@pytest.mark.parametrize("root", [2, 3])
def test_an_absent_root_is_replaced_by_its_representative(left: dict[str, Any], root: int) -> None:
    assert left[f"broadcast {root}"] == [[3.0, 3.0]] * 2


def test_gathers_have_a_tensor_from_each_member(left: dict[str, Any]) -> None:
    assert left["allgather"] == [[1.0, 1.0, 3.0, 3.0]] * 2
    assert left["gather"] == [[1.0, 1.0, 3.0, 3.0], [0.0] * 4]


def test_scatters_have_a_tensor_for_each_member(left: dict[str, Any]) -> None:
    assert left["scatter"] == [[20.0, 20.0], [22.0, 22.0]]
    assert left["scatter_from_absent"] == [[1.0, 1.0], [3.0, 3.0]], "nobody is there to send"
    assert left["reduce_scatter"] == [[40.0, 40.0], [48.0, 48.0]]
    assert left["alltoall"] == [[0.0, 0.0, 20.0, 20.0], [2.0, 2.0, 22.0, 22.0]]


def test_messages_arrive_from_members_that_run(left: dict[str, Any]) -> None:
    assert left["message"] == [[1.0, 1.0]] * 2
    assert left["message_of_absent"] == [[1.0, 1.0], [3.0, 3.0]]
    assert left["barrier"] == [[1.0, 1.0], [3.0, 3.0]]


def test_two_ranks_may_ask_for_a_message_before_they_send_theirs(left: dict[str, Any]) -> None:
    assert left["exchange"] == [[3.0, 3.0], [1.0, 1.0]]
    assert left["exchange_with_absent"] == [[1.0, 1.0], [3.0, 3.0]], "an absent rank sends what this one does"
