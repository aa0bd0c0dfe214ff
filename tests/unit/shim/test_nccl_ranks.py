"""Several ranks that run together on the fake NCCL: exchanged data, and the data of absent ranks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from support import emulated
from support.nccl_programs import RUNNER, Program

WORLD = 4


@pytest.mark.parametrize("seed", range(4))
def test_valid_programs_do_not_hang_and_have_nccls_results(tmp_path: Path, seed: int) -> None:
    """50 random programs of four ranks: any order of communicators, dependent calls, groups, late reads and writes."""
    programs = [Program(1000 * seed + number, WORLD) for number in range(50)]
    initial = {rank: [[1000 * rank + 10 * b + e for e in range(4)] for b in range(4)] for rank in range(WORLD)}
    content = [
        {"communicators": program.communicators, "events": program.events, "memory": initial} for program in programs
    ]
    (tmp_path / "programs.json").write_text(json.dumps(content))
    ranks = dict.fromkeys(range(WORLD), ())
    done = emulated.run_ranks(RUNNER, tmp_path, ranks, world_size=WORLD, PROGRAMS=str(tmp_path / "programs.json"))
    assert [done[rank].results["done"] for rank in range(WORLD)] == [50] * WORLD


CODE = """
import os, struct
from ctypes import Structure, byref, c_char, c_double, c_float, c_int, c_int64, c_size_t, c_void_p

nccl, shim = ctypes.CDLL("libnccl.so.2"), ctypes.CDLL("libpresim_shim.so")
shim.presim_before_read.argtypes = [c_void_p, c_size_t]

class UniqueId(Structure):
    _fields_ = [("internal", c_char * 128)]

nccl.ncclCommInitRank.argtypes = [c_void_p, c_int, UniqueId, c_int]
own, world = int(os.environ["PRESIM_RANK"]), int(os.environ["PRESIM_WORLD_SIZE"])
U8, I64, F32, SUM = 1, 4, 7, 0
comm = c_void_p()
assert nccl.ncclCommInitRank(byref(comm), world, UniqueId(b"everybody"), own) == 0

def numbers(*values):
    return (c_int64 * len(values))(*values)

def read(buffer):
    shim.presim_before_read(buffer, ctypes.sizeof(buffer))
    return list(buffer)
"""

STAND_INS = (
    CODE
    + """
mine, out = numbers(own + 1), numbers(*[0] * world)
nccl.ncclAllGather(mine, out, c_size_t(1), I64, comm, None)
results["gathered"] = read(out)
total = numbers(0)
nccl.ncclAllReduce(mine, total, c_size_t(1), I64, SUM, comm, None)
results["sum"] = read(total)
slices, out = numbers(*[100 * own + peer for peer in range(world)]), numbers(*[0] * world)
nccl.ncclAlltoAll(slices, out, c_size_t(1), I64, comm, None)
results["exchanged"] = read(out)
kept = numbers(own)
nccl.ncclBroadcast(kept, kept, c_size_t(1), I64, 2, comm, None)
results["from an absent root"] = read(kept)
sent, got = numbers(7 + own), numbers(0)
nccl.ncclGroupStart()
nccl.ncclRecv(got, c_size_t(1), I64, 1, comm, None)
nccl.ncclSend(sent, c_size_t(1), I64, 2, comm, None)
nccl.ncclGroupEnd()
results["from an absent peer"] = read(got)
nccl.presim_ranks_end()
"""
)


def test_absent_ranks_have_the_data_of_their_representatives(tmp_path: Path) -> None:
    """Ranks 0 and 3 of 6 run; 0 represents 1 and 2, 3 represents 4; unrepresented 5 has the caller's own data."""
    done = emulated.run_ranks(STAND_INS, tmp_path, {0: (1, 2), 3: (4,)}, world_size=6)
    first, second = done[0].results, done[3].results
    assert first["gathered"] == [1, 1, 1, 4, 4, 1]
    assert second["gathered"] == [1, 1, 1, 4, 4, 4]
    assert (first["sum"], second["sum"]) == ([4 * 1 + 2 * 4], [3 * 1 + 3 * 4])
    assert first["exchanged"] == [0, 0, 0, 300, 300, 0]
    assert second["exchanged"] == [3, 3, 3, 303, 303, 303]
    assert (first["from an absent root"], second["from an absent root"]) == ([0], [3])
    assert (first["from an absent peer"], second["from an absent peer"]) == ([7], [10])


REDUCTIONS = (
    CODE
    + """
SIZES = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]
inputs = json.loads(os.environ["INPUTS"])
for dtype, by_rank in inputs.items():
    raw = bytes.fromhex(by_rank[own])
    for op in range(5):
        send = (ctypes.c_char * len(raw)).from_buffer_copy(raw)
        out = (ctypes.c_char * len(raw))()
        count = c_size_t(len(raw) // SIZES[int(dtype)])
        assert nccl.ncclAllReduce(send, out, count, int(dtype), op, comm, None) == 0
        shim.presim_before_read(out, len(raw))
        results[f"{dtype} {op}"] = out.raw.hex()
factor = c_int()
assert nccl.ncclRedOpCreatePreMulSum(byref(factor), byref(c_float(0.5 + own)), F32, 1, comm) == 0
value, out = c_float(2.0), c_float()
nccl.ncclAllReduce(byref(value), byref(out), c_size_t(1), F32, factor, comm, None)
shim.presim_before_read(byref(out), 4)
results["premul"] = out.value
nccl.presim_ranks_end()
"""
)
# By NCCL's type number: integers and numpy's floats, then 8-bit floats and bfloat16.
NATIVE = {0: np.int8, 1: np.uint8, 2: np.int32, 3: np.uint32, 4: np.int64, 5: np.uint64, 6: np.float16,
          7: np.float32, 8: np.float64}  # fmt: skip
SHORT = {9: (16, 8, 127, 0x7F7F), 10: (8, 4, 7, 0x7E), 11: (8, 5, 15, 0x7B)}  # bits, exponent bits, bias, largest


def table(dtype: int) -> np.ndarray:
    """The non-negative finite values of a short type, indexed by their bits."""
    bits, exponent_bits, bias, largest = SHORT[dtype]
    mantissa_bits = bits - 1 - exponent_bits
    codes = np.arange(largest + 1)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    normal = (mantissa + (1 << mantissa_bits)) * 2.0 ** (exponent - bias - mantissa_bits)
    return np.where(exponent == 0, mantissa * 2.0 ** (1 - bias - mantissa_bits), normal)


def encode(dtype: int, values: np.ndarray) -> bytes:
    """Round to the nearest value, ties to even."""
    if dtype in NATIVE:
        return values.astype(NATIVE[dtype]).tobytes()
    distance = np.abs(table(dtype)[None, :] - np.abs(values)[:, None])
    even_first = distance + np.where(np.arange(distance.shape[1]) % 2, 1e-12, 0.0)
    sign = np.where(np.signbit(values), 1 << (SHORT[dtype][0] - 1), 0)
    return (even_first.argmin(axis=1) | sign).astype(np.uint16 if dtype == 9 else np.uint8).tobytes()


def decode(dtype: int, data: bytes) -> list[float]:
    if dtype in NATIVE:
        return np.frombuffer(data, NATIVE[dtype]).astype(np.float64).tolist()
    codes = np.frombuffer(data, np.uint16 if dtype == 9 else np.uint8).astype(np.int64)
    sign = 1 << (SHORT[dtype][0] - 1)
    return (table(dtype)[codes % sign] * np.where(codes & sign, -1, 1)).tolist()


def expected(dtype: int, rows: np.ndarray, op: int) -> list[float]:
    """The reduction over three ranks, computed by numpy and rounded to the type."""
    result = (rows.sum(axis=0), rows.prod(axis=0), rows.max(axis=0), rows.min(axis=0), rows.sum(axis=0) / 3)[op]
    if dtype < 6:
        result = np.trunc(result).astype(np.int64)  # a mean is rounded towards zero, as in C
    return decode(dtype, encode(dtype, result))


def test_every_type_and_operation_reduces_like_numpy(tmp_path: Path) -> None:
    """Three ranks with different small values: all twelve types; sum, product, maximum, minimum and mean."""
    random = np.random.default_rng(0)
    values = {dtype: random.integers(0 if dtype in (1, 3, 5) else -5, 6, (3, 16)) for dtype in range(12)}
    values = {dtype: rows if dtype < 6 else rows.astype(np.float64) for dtype, rows in values.items()}
    inputs = {dtype: [encode(dtype, row).hex() for row in rows] for dtype, rows in values.items()}
    done = emulated.run_ranks(REDUCTIONS, tmp_path, {0: (), 1: (), 2: ()}, world_size=3, INPUTS=json.dumps(inputs))
    for dtype, rows in values.items():
        for op in range(5):
            found = {str(done[rank].results[f"{dtype} {op}"]) for rank in range(3)}
            assert len(found) == 1
            assert decode(dtype, bytes.fromhex(found.pop())) == expected(dtype, rows, op), (dtype, op)
    assert [done[rank].results["premul"] for rank in range(3)] == [2.0 * (0.5 + 1.5 + 2.5)] * 3


LATE = (
    CODE
    + """
mine, total = numbers(own + 1), numbers(0)
nccl.ncclAllReduce(mine, total, c_size_t(1), I64, SUM, comm, None)
results["together"] = read(total)
if own == 0:
    nccl.ncclAllReduce(mine, total, c_size_t(1), I64, SUM, comm, None)
    results["alone"] = read(total)
    nccl.ncclAllReduce(mine, total, c_size_t(1), I64, SUM, comm, None)
nccl.presim_ranks_end()
"""
)


def test_an_exited_rank_is_not_waited_for(tmp_path: Path) -> None:
    """On the cluster this hangs, which the traces report; here the rank continues with its own data."""
    done = emulated.run_ranks(LATE, tmp_path, {0: (), 1: ()}, world_size=2)
    assert (done[0].results["together"], done[0].results["alone"]) == ([3], [2])


CROSSED = (
    CODE
    + """
other, got = c_void_p(), numbers(0)
assert nccl.ncclCommInitRank(byref(other), world, UniqueId(b"another"), own) == 0
sent = numbers(own + 1)
for which in ((comm, other), (other, comm))[own]:
    nccl.ncclRecv(got, c_size_t(1), I64, 1 - own, which, None)
    results.setdefault("got", []).extend(read(got))
    nccl.ncclSend(sent, c_size_t(1), I64, 1 - own, which, None)
nccl.presim_ranks_end()
"""
)


def test_deadlocked_ranks_continue(tmp_path: Path) -> None:
    """Each rank sends only after it received from the other; the first of them stops waiting."""
    done = emulated.run_ranks(CROSSED, tmp_path, {0: (), 1: ()}, world_size=2)
    assert done[0].results["got"][0] == 0


LARGE = (
    CODE
    + """
big, small = numbers(*[own] * 10_000), numbers(0)
nccl.ncclAllReduce(big, big, c_size_t(10_000), I64, SUM, comm, None)
nccl.ncclSend(big, c_size_t(10_000), I64, 1 - own, comm, None)
nccl.ncclRecv(big, c_size_t(10_000), I64, 1 - own, comm, None)
nccl.ncclSend(numbers(own + 1), c_size_t(1), I64, 1 - own, comm, None)
nccl.ncclRecv(small, c_size_t(1), I64, 1 - own, comm, None)
results["untouched"] = read(big)[:2]
results["small"] = read(small)
results["posted"] = os.path.getsize(os.environ["PRESIM_RANKS_DIR"] + f"/rank-{own}")
nccl.presim_ranks_end()
"""
)


def test_large_payloads_are_not_moved(tmp_path: Path) -> None:
    """80,000 bytes are not moved; the small message after them still matches its receive."""
    done = emulated.run_ranks(LARGE, tmp_path, {0: (), 1: ()}, world_size=2)
    for rank in (0, 1):
        assert done[rank].results["untouched"] == [rank, rank]
        assert done[rank].results["small"] == [2 - rank]
        assert done[rank].results["posted"] < 4096 + 100


WAITS = (
    CODE
    + """
cuda = ctypes.CDLL("libcudart.so.13")
folder = os.environ["PREPARED"]

def reduce(stream=None):
    large = (c_int64 * 65536)()
    assert nccl.ncclAllReduce(large, large, c_size_t(65536), I64, SUM, comm, stream) == 0

def is_prepared(turn):
    return os.path.exists(f"{folder}/{turn}")

def prepare(turn):
    if own == 0:
        sum(range(3_000_000))
        open(f"{folder}/{turn}", "w").close()

event, stream = c_void_p(), c_void_p()
assert cuda.cudaEventCreate(byref(event)) == 0 and cuda.cudaStreamCreate(byref(stream)) == 0
prepare("device"); reduce(); assert cuda.cudaDeviceSynchronize() == 0
results["device"] = is_prepared("device")
prepare("stream"); reduce(stream); assert cuda.cudaStreamSynchronize(stream) == 0
results["stream"] = is_prepared("stream")
prepare("event"); reduce(); assert cuda.cudaEventRecord(event, None) == 0
assert cuda.cudaStreamWaitEvent(stream, event, 0) == 0 and cuda.cudaStreamSynchronize(stream) == 0
results["event of another stream"] = is_prepared("event")
if own == 1:
    reduce(); reduce()
    assert cuda.cudaDeviceSynchronize() == 0
    results["beyond the other's end"] = True
nccl.presim_ranks_end()
"""
)


def test_hosts_wait_for_calls_of_others_and_not_for_ranks_that_have_ended(tmp_path: Path) -> None:
    """Rank 0 prepares and calls; rank 1 finds what was prepared. Its last calls are never met."""
    (tmp_path / "prepared").mkdir()
    done = emulated.run_ranks(WAITS, tmp_path, {0: (), 1: ()}, world_size=2, PREPARED=str(tmp_path / "prepared"))
    assert all(value for rank in done.values() for value in rank.results.values()), done


OPPOSITE = (
    CODE
    + """
cuda = ctypes.CDLL("libcudart.so.13")
other = c_void_p()
assert nccl.ncclCommInitRank(byref(other), world, UniqueId(b"others"), own) == 0
large = (c_int64 * 65536)()
for which in (comm, other) if own == 0 else (other, comm):
    assert nccl.ncclAllReduce(large, large, c_size_t(65536), I64, SUM, which, None) == 0
    assert cuda.cudaDeviceSynchronize() == 0
results["done"] = True
nccl.presim_ranks_end()
"""
)


def test_ranks_that_wait_for_each_other_go_on(tmp_path: Path) -> None:
    """Each waits for a call that the other makes afterwards; the simulation of the traces reports it."""
    done = emulated.run_ranks(OPPOSITE, tmp_path, {0: (), 1: ()}, world_size=2)
    assert [done[rank].results for rank in (0, 1)] == [{"done": True}] * 2
