"""Fake NCCL, called through its C interface: one rank whose peers do not exist."""

from __future__ import annotations

import pytest

from support import emulated

CODE = """
from ctypes import Structure, byref, c_char, c_float, c_int, c_size_t, c_void_p

nccl = ctypes.CDLL("libnccl.so.2")

class UniqueId(Structure):
    _fields_ = [("internal", c_char * 128)]

nccl.ncclCommInitRank.argtypes = [c_void_p, c_int, UniqueId, c_int]
identity, comm = UniqueId(), c_void_p()
assert nccl.ncclGetUniqueId(byref(identity)) == 0
assert nccl.ncclCommInitRank(byref(comm), 4, identity, 2) == 0
I32, I64, F32, BF16, SUM, MAX, AVG = 2, 4, 7, 9, 0, 2, 4

def floats(*values):
    return (c_float * len(values))(*values)

def put(name, buffer):
    results[name] = list(buffer)

with section("sizes"):
    data = floats(*range(8))
    out = floats(*[0] * 32)
    nccl.ncclAllReduce(data, out, c_size_t(8), F32, SUM, comm, None)
    put("all_reduce sum", out[:8])
    nccl.ncclAllReduce(data, out, c_size_t(8), F32, AVG, comm, None)
    put("all_reduce avg", out[:8])
    nccl.ncclAllGather(data, out, c_size_t(2), F32, comm, None)
    put("all_gather", out[:8])
    nccl.ncclReduceScatter(data, out, c_size_t(2), F32, SUM, comm, None)
    put("reduce_scatter", out[:2])
    nccl.ncclBroadcast(data, out, c_size_t(8), F32, 1, comm, None)
    nccl.ncclReduce(data, out, c_size_t(8), F32, MAX, 0, comm, None)
    nccl.ncclAlltoAll(data, out, c_size_t(2), F32, comm, None)
    put("all_to_all", out[:8])

with section("large"):
    big = c_void_p(0x1000)  # never touched
    nccl.ncclAllGather(big, big, c_size_t(1 << 30), BF16, comm, None)

with section("premul"):
    op = c_int()
    nccl.ncclRedOpCreatePreMulSum(byref(op), byref(c_float(0.25)), F32, 1, comm)
    nccl.ncclAllReduce(data, out, c_size_t(8), F32, op, comm, None)
    put("premul", out[:8])

with section("group"):
    sent, received = [floats(p, p) for p in range(4)], [floats(9, 9) for p in range(4)]
    before, seen = _records(), []
    nccl.ncclGroupStart()
    for peer in range(4):
        nccl.ncclGroupStart()
        nccl.ncclRecv(received[peer], c_size_t(2), F32, peer, comm, None)
        nccl.ncclSend(sent[peer], c_size_t(2), F32, peer, comm, None)
        nccl.ncclGroupEnd()
        seen.append(_records() - before)
    nccl.ncclGroupEnd()
    results["seen of a group"] = [*seen, _records() - before]
    nccl.ncclAllReduce(data, out, c_size_t(1), F32, SUM, comm, None)
    put("received", [list(buffer) for buffer in received])

with section("broadcasts"):
    mine, slots = floats(5, 7), [floats(0, 0) for p in range(4)]
    nccl.ncclGroupStart()
    for root in range(4):
        nccl.ncclBroadcast(mine, slots[root], c_size_t(2), F32, root, comm, None)
    nccl.ncclGroupEnd()
    nccl.ncclBroadcast(slots[0], mine, c_size_t(2), F32, 0, comm, None)
    put("gathered", [list(slot) for slot in slots])
    put("kept", mine)

with section("split"):
    nccl.presim_nccl_split_size(77, 2)
    known, unknown, none = c_void_p(), c_void_p(), c_void_p(1)
    nccl.ncclCommSplit(comm, 77, 1, byref(known), None)
    nccl.ncclCommSplit(comm, 78, 0, byref(unknown), None)
    nccl.presim_nccl_split_size(-1, 3)
    nccl.ncclCommSplit(comm, 79, 0, byref(c_void_p()), None)
    nccl.presim_nccl_split_size(-1, 0)
    nccl.ncclCommSplit(comm, -1, 0, byref(none), None)
    results["no color"] = none.value
    nccl.ncclAllGather(data, out, c_size_t(2), F32, known, None)
    nccl.ncclAllGather(data, out, c_size_t(2), F32, unknown, None)

with section("abandoned"):
    import threading
    def leave():
        nccl.ncclGroupStart()
        nccl.ncclAllReduce(data, out, c_size_t(2), F32, SUM, comm, None)
    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
with section("beside"):
    nccl.ncclAllReduce(data, out, c_size_t(1), F32, SUM, comm, None)

results["bad comm"] = nccl.ncclAllReduce(data, out, c_size_t(1), F32, SUM, None, None)
results["bad root"] = nccl.ncclBroadcast(data, out, c_size_t(1), F32, 4, comm, None)
results["bad end"] = nccl.ncclGroupEnd()
results["bad rank"] = nccl.ncclCommInitRank(byref(c_void_p()), 4, identity, 4)
error = c_int(-1)
results["async"] = [nccl.ncclCommGetAsyncError(comm, byref(error)), error.value]
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> emulated.Captured:
    """One process makes all the calls."""
    return emulated.run(CODE, tmp_path_factory.mktemp("nccl"))


def test_message_sizes_follow_nccl_tests(captured: emulated.Captured) -> None:
    """With four ranks: the whole result of a gather, the whole input of a scatter, the tensor otherwise."""
    assert captured.work("sizes") == [
        "collective kind=all_reduce bytes=32 dtype=f32 redop=sum comm=0 peer=-1",
        "collective kind=all_reduce bytes=32 dtype=f32 redop=avg comm=0 peer=-1",
        "collective kind=all_gather bytes=32 dtype=f32 redop=none comm=0 peer=-1",
        "collective kind=reduce_scatter bytes=32 dtype=f32 redop=sum comm=0 peer=-1",
        "collective kind=broadcast bytes=32 dtype=f32 redop=none comm=0 peer=1",
        "collective kind=reduce bytes=32 dtype=f32 redop=max comm=0 peer=0",
        "collective kind=all_to_all bytes=32 dtype=f32 redop=none comm=0 peer=-1",
    ]


def test_small_payloads_are_computed_as_if_all_ranks_had_equal_data(captured: emulated.Captured) -> None:
    """Rank 2 of 4 with the values 0..7."""
    assert captured.results["all_reduce sum"] == [4.0 * value for value in range(8)]
    assert captured.results["all_reduce avg"] == list(range(8))
    assert captured.results["all_gather"] == [0, 1] * 4
    assert captured.results["reduce_scatter"] == [16, 20]
    assert captured.results["all_to_all"] == [4, 5] * 4
    assert captured.results["premul"] == list(range(8))


def test_large_payloads_are_not_accessed(captured: emulated.Captured) -> None:
    """Their addresses may be unmapped."""
    expected = f"collective kind=all_gather bytes={8 << 30} dtype=bf16 redop=none comm=0 peer=-1"
    assert captured.work("large") == [expected]


def test_calls_of_a_group_are_one_launch(captured: emulated.Captured) -> None:
    """A call outside a group is its own launch."""
    *group, alone = captured.launch_groups("group")
    assert len(group) == 8
    assert len(set(group)) == 1
    assert alone != group[0]


def test_a_group_is_logged_completely_or_not_at_all(captured: emulated.Captured) -> None:
    """A group is logged at its outermost end; a group that never ends is not logged."""
    assert captured.results["seen of a group"] == [0, 0, 0, 0, 8]
    first, _ = captured.sections["group"]
    assert len(set(captured.log.records[first : first + 8]["cpu_ns"].tolist())) == 1
    assert captured.work("abandoned") == []
    assert captured.work("beside") == ["collective kind=all_reduce bytes=4 dtype=f32 redop=sum comm=0 peer=-1"]


def test_receives_in_a_group_return_the_data_of_the_send(captured: emulated.Captured) -> None:
    """Each receive is called before its send."""
    assert captured.results["received"] == [[2, 2]] * 4


def test_grouped_broadcasts_from_every_rank_gather_equal_data(captured: emulated.Captured) -> None:
    """PyTorch gathers separate tensors this way; a single broadcast leaves the receiver's data unchanged."""
    assert captured.results["gathered"] == [[5, 7]] * 4
    assert captured.results["kept"] == [5, 7]


def test_communicators_are_logged(captured: emulated.Captured) -> None:
    """A split is logged with its parent, and with its size if the framework gave it."""
    notes = [note for note in captured.log.notes if note.startswith("communicator ")]
    facts = [note.split(" unique_id=")[0] for note in notes]
    assert facts == [
        "communicator serial=0 size=4 rank=2 parent=-1 color=-1 key=-1",
        "communicator serial=1 size=2 rank=1 parent=0 color=77 key=1",
        "communicator serial=2 size=-1 rank=0 parent=0 color=78 key=0",
        "communicator serial=3 size=3 rank=0 parent=0 color=79 key=0",
    ]
    assert captured.results["no color"] is None


def test_a_split_of_unknown_size(captured: emulated.Captured) -> None:
    """The bytes are those of one rank, and the record is marked."""
    assert captured.work("split") == [
        "collective kind=all_gather bytes=16 dtype=f32 redop=none comm=1 peer=-1",
        "collective kind=all_gather bytes=8 dtype=f32 redop=none comm=2 peer=-1 per_rank=1",
    ]


def test_misuse_is_reported_as_nccl_does(captured: emulated.Captured) -> None:
    """Status 4 is `invalid argument`, 5 is `invalid usage`."""
    assert captured.results["bad comm"] == 4
    assert captured.results["bad root"] == 4
    assert captured.results["bad rank"] == 4
    assert captured.results["bad end"] == 5
    assert captured.results["async"] == [0, 0]
