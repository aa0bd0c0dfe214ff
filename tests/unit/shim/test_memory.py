"""Device memory: capacity, copied contents, and the calls that CUDA refuses."""

from __future__ import annotations

import pytest

from support import emulated

SEGMENT_ALLOC, SEGMENT_FREE = 9, 10
GIB = 1 << 30
TOTAL = 85520809984

CODE = """
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p, create_string_buffer, string_at

rt = ctypes.CDLL("libcudart.so.13")
cu = ctypes.CDLL("libcuda.so.1")
GIB = 1 << 30
H2D, D2H, D2D, DEFAULT = 1, 2, 3, 4

def malloc(size):
    out = c_void_p()
    status = rt.cudaMalloc(byref(out), c_size_t(size))
    return status, out

def free_bytes():
    free, total = c_size_t(), c_size_t()
    assert rt.cudaMemGetInfo(byref(free), byref(total)) == 0
    return free.value, total.value

def copy(to, source, size, kind):
    return rt.cudaMemcpy(to, source, c_size_t(size), kind)

def host_type(address):
    attributes = create_string_buffer(128)
    assert rt.cudaPointerGetAttributes(attributes, address) == 0
    return int.from_bytes(attributes.raw[:4], "little")

results["fresh"] = free_bytes()
with section("capacity"):
    status, big = malloc(60 * GIB)
    results["first"] = status
    results["second"] = malloc(30 * GIB)[0]
    results["last error"] = [rt.cudaGetLastError(), rt.cudaGetLastError()]
    results["taken"] = free_bytes()
    results["free"] = [rt.cudaFree(big), rt.cudaFree(big), rt.cudaFree(None)]
    results["given back"] = free_bytes()

_, small = malloc(1 << 20)
sent, back = create_string_buffer(b"x" * 65536, 65536), create_string_buffer(b"?" * 65536, 65536)
copy(small, sent, 65536, H2D)
other = c_void_p(small.value + 131072)
copy(other, small, 65536, D2D)
copy(back, other, 65536, DEFAULT)
results["small copy"] = back.raw == b"x" * 65536
rt.cudaMemset(small, 7, c_size_t(16))
copy(back, small, 32, D2H)
results["small memset"] = back.raw[:32].hex()

with section("peer"):
    results["peer"] = [rt.cudaMemcpyPeerAsync(other, device, small, 0, c_size_t(4096), None) for device in (1, 0, 99)]
    results["peer at once"] = rt.cudaMemcpyPeer(other, 0, small, 1, c_size_t(4096))

large = create_string_buffer(b"z" * 200000, 200000)
copy(small, large, 200000, H2D)
copy(back, small, 64, D2H)
results["after large"] = back.raw[:64] == bytes(64)
copy(large, small, 200000, D2H)
results["large to host"] = large.raw == bytes(200000)

results["beyond"] = copy(small, large, (1 << 20) + 4096, H2D)
_, gone = malloc(4096)
rt.cudaFree(gone)
results["freed address"] = [copy(gone, sent, 16, H2D), copy(back, gone, 16, D2H), rt.cudaMemset(gone, 0, c_size_t(4))]
results["wrong direction"] = [copy(back, small, 16, H2D), copy(back, small, 16, 9)]
results["inner address"] = rt.cudaFree(c_void_p(small.value + 512))

with section("host"):
    pinned = c_void_p()
    rt.cudaHostAlloc(byref(pinned), c_size_t(4096), 0)
    copy(small, pinned, 4096, H2D)
    rt.cudaMemcpyAsync(small, pinned, c_size_t(4096), H2D, None)
    copy(small, sent, 4096, H2D)
results["types"] = [host_type(pinned), host_type(small), host_type(sent)]
page = create_string_buffer(8192)
results["register"] = [rt.cudaHostRegister(page, c_size_t(8192), 0), host_type(page),
                       rt.cudaHostRegister(page, c_size_t(8192), 0), rt.cudaHostUnregister(page),
                       rt.cudaHostUnregister(page), host_type(page)]
results["free host"] = [rt.cudaFreeHost(pinned), rt.cudaFreeHost(pinned)]

# Stream-ordered allocation: the pool holds chunks until it is trimmed.
def attribute(pool, number):
    value = c_uint64()
    assert rt.cudaMemPoolGetAttribute(pool, number, byref(value)) == 0
    return value.value

pool, block = c_void_p(), c_void_p()
rt.cudaDeviceGetDefaultMemPool(byref(pool), 0)
rt.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(2**64 - 1)))
before = free_bytes()[0]
results["async"] = rt.cudaMallocAsync(byref(block), c_size_t(5 << 20), None)
results["pool"] = [attribute(pool, 5), attribute(pool, 7), before - free_bytes()[0]]
results["free async"] = [rt.cudaFreeAsync(block, None), rt.cudaFreeAsync(block, None)]
rt.cudaDeviceSynchronize()
results["pool after free"] = [attribute(pool, 5), attribute(pool, 7), attribute(pool, 8)]
rt.cudaMemPoolTrimTo(pool, c_size_t(0))
results["pool after trim"] = [attribute(pool, 5), before - free_bytes()[0]]
results["async too large"] = rt.cudaMallocAsync(byref(block), c_size_t(90 * GIB), None)

# Virtual memory: 64 MiB of addresses, two mappings side by side.
M2 = 2 << 20
space, handles = c_uint64(), [c_uint64(), c_uint64()]
properties = create_string_buffer(bytes([1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), 64)
with section("virtual"):
    assert cu.cuMemAddressReserve(byref(space), c_size_t(64 << 20), c_size_t(0), c_uint64(0), c_uint64(0)) == 0
    results["create"] = [cu.cuMemCreate(byref(h), c_size_t(M2), properties, c_uint64(0)) for h in handles]
    at = [space.value, space.value + M2]
    results["map"] = [cu.cuMemMap(c_uint64(a), c_size_t(M2), c_size_t(0), h, c_uint64(0)) for a, h in zip(at, handles)]
    results["map twice"] = cu.cuMemMap(c_uint64(at[0]), c_size_t(M2), c_size_t(0), handles[0], c_uint64(0))
    results["access"] = cu.cuMemSetAccess(space, c_size_t(2 * M2), None, c_size_t(0))
    results["across"] = copy(c_void_p(at[1] - 1000), sent, 2000, H2D)
    results["unmapped"] = copy(c_void_p(at[1] + M2), sent, 16, H2D)
    results["free mapped"] = cu.cuMemAddressFree(space, c_size_t(64 << 20))
    held = free_bytes()[0]
    results["release"] = [cu.cuMemRelease(h) for h in handles]
    results["held by mapping"] = held - free_bytes()[0]
    results["unmap"] = cu.cuMemUnmap(space, c_size_t(2 * M2))
    results["freed by unmap"] = free_bytes()[0] - held
    results["release twice"] = cu.cuMemRelease(handles[0])
    results["free space"] = cu.cuMemAddressFree(space, c_size_t(64 << 20))
    results["too much"] = cu.cuMemCreate(byref(handles[0]), c_size_t(90 * GIB), properties, c_uint64(0))
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> emulated.Captured:
    """One process makes all the calls."""
    return emulated.run(CODE, tmp_path_factory.mktemp("memory"))


def segments(captured: emulated.Captured, section: str) -> list[tuple[int, int]]:
    """Kind and bytes of a section's allocations and frees."""
    first, end = captured.sections[section]
    records = captured.log.records[first:end]
    chosen = records[(records["kind"] == SEGMENT_ALLOC) | (records["kind"] == SEGMENT_FREE)]
    return [(int(kind), int(value)) for kind, value in zip(chosen["kind"], chosen["value"], strict=True)]


def test_allocations_are_limited_to_the_devices_memory(captured: emulated.Captured) -> None:
    """The second allocation does not fit; cudaMemGetInfo agrees."""
    results = captured.results
    assert results["fresh"] == [TOTAL, TOTAL]
    assert (results["first"], results["second"]) == (0, 2)
    assert results["taken"] == [TOTAL - 60 * GIB, TOTAL]
    assert results["given back"] == [TOTAL, TOTAL]
    assert segments(captured, "capacity") == [(SEGMENT_ALLOC, 60 * GIB), (SEGMENT_FREE, 60 * GIB)]


def test_the_last_error_is_returned_once(captured: emulated.Captured) -> None:
    """cudaGetLastError returns and clears it."""
    assert captured.results["last error"] == [2, 0]


def test_a_double_free_is_refused(captured: emulated.Captured) -> None:
    """The error is cudaErrorInvalidValue, as for an address inside a block; freeing null succeeds."""
    assert captured.results["free"] == [0, 1, 0]
    assert captured.results["inner address"] == 1


def test_small_transfers_copy_their_data(captured: emulated.Captured) -> None:
    """Copies to, on and from the device, and fills."""
    assert captured.results["small copy"] is True
    assert captured.results["small memset"] == "07" * 16 + "78" * 16


def test_large_transfers_leave_zeros(captured: emulated.Captured) -> None:
    """The destination holds neither its old contents nor other host memory."""
    assert captured.results["after large"] is True
    assert captured.results["large to host"] is True


def test_misused_addresses_are_refused(captured: emulated.Captured) -> None:
    """Beyond a block, in a freed block, or contrary to the direction of the copy."""
    assert captured.results["beyond"] == 1
    assert captured.results["freed address"] == [1, 1, 1]
    assert captured.results["wrong direction"] == [1, 21]


def test_pointer_attributes_distinguish_pinned_device_and_pageable_memory(captured: emulated.Captured) -> None:
    """The types are 1 for pinned, 2 for device and 0 for pageable memory; the log has them too."""
    assert captured.results["types"] == [1, 2, 0]
    assert captured.results["register"] == [0, 1, 712, 0, 713, 0]
    assert captured.results["free host"] == [0, 1]
    assert captured.work("host") == [
        "copy direction=h2d bytes=4096 pinned=1",
        "copy direction=h2d bytes=4096 pinned=1",
        "copy direction=h2d bytes=4096 pinned=0",
    ]


def test_a_copy_between_gpus_is_logged_with_both_gpus(captured: emulated.Captured) -> None:
    """Within one GPU it is an ordinary copy; for a missing GPU it fails with cudaErrorInvalidDevice."""
    assert (captured.results["peer"], captured.results["peer at once"]) == ([0, 0, 101], 0)
    assert captured.work("peer") == [f"copy direction={way} bytes=4096 pinned=0" for way in ("peer", "d2d", "peer")]


def test_a_memory_pool_keeps_its_chunks_until_it_is_trimmed(captured: emulated.Captured) -> None:
    """It allocates a 32 MiB chunk for a block of 5 MiB."""
    results = captured.results
    assert (results["async"], results["free async"], results["async too large"]) == (0, [0, 1], 2)
    assert results["pool"] == [32 << 20, 5 << 20, 32 << 20]
    assert results["pool after free"] == [32 << 20, 0, 5 << 20]
    assert results["pool after trim"] == [0, 0]


def test_adjacent_mappings_are_one_range(captured: emulated.Captured) -> None:
    """A copy may cross from one mapping into the next; memory is freed with its last mapping."""
    results = captured.results
    assert (results["create"], results["map"], results["access"], results["across"]) == ([0, 0], [0, 0], 0, 0)
    assert (results["held by mapping"], results["freed by unmap"]) == (0, 4 << 20)
    assert (results["release"], results["unmap"], results["free space"]) == ([0, 0], 0, 0)
    sizes = [(SEGMENT_ALLOC, 2 << 20)] * 2 + [(SEGMENT_FREE, 2 << 20)] * 2
    assert segments(captured, "virtual") == sizes


def test_misused_mappings_are_refused(captured: emulated.Captured) -> None:
    """Mapped twice, not mapped, still mapped, released twice, or beyond the capacity."""
    results = captured.results
    refused = [results[name] for name in ("map twice", "unmapped", "free mapped", "release twice", "too much")]
    assert refused == [1, 1, 1, 1, 2]
