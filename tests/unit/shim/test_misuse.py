"""Copies and fills beyond their allocation are reported to the byte and refused where CUDA refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

SETUP = """
from ctypes import byref, c_size_t, c_void_p, create_string_buffer

rt = ctypes.CDLL("libcudart.so.13")
cu = ctypes.CDLL("libcuda.so.1")
H2D, D2H, DEFAULT = 1, 2, 4
host = create_string_buffer(1 << 16)

def malloc(size):
    out = c_void_p()
    assert rt.cudaMalloc(byref(out), c_size_t(size)) == 0
    return out

def copy(to, source, size, kind=DEFAULT):
    return rt.cudaMemcpy(to, source, c_size_t(size), kind)

def at(block, offset):
    return c_void_p(block.value + offset)

block = malloc(1000)
"""
INVALID = 1
GONE = "memory that is not the device's: it was freed, or never allocated there"
BEYOND = "beyond the end of an allocation of 1000 bytes"


@pytest.mark.parametrize(
    ("call", "status", "message"),
    [
        ("copy(block, host, 1000)", 0, ""),
        ("copy(at(block, 999), host, 1)", 0, ""),
        ("copy(block, host, 0)", 0, ""),
        ("copy(block, host, 1001)", 0, f"a copy of 1001 bytes writes 1 byte {BEYOND}"),
        ("copy(host, at(block, 500), 502)", 0, f"a copy of 502 bytes reads 2 bytes {BEYOND}"),
        ("copy(block, host, 5000)", INVALID, f"a copy of 5000 bytes writes 4000 bytes {BEYOND}"),
        ("rt.cudaMemset(block, 0, c_size_t(5000))", INVALID, f"a fill of 5000 bytes writes 4000 bytes {BEYOND}"),
        ("cu.cuMemsetD32_v2(block, 0, c_size_t(251))", 0, f"a fill of 1004 bytes writes 4 bytes {BEYOND}"),
        ("cu.cuMemcpyDtoH_v2(host, block, c_size_t(1002))", 0, f"a copy of 1002 bytes reads 2 bytes {BEYOND}"),
        (
            "rt.cudaMemcpy2D(block, c_size_t(300), host, c_size_t(300), c_size_t(101), c_size_t(4), H2D)",
            0,
            f"a copy of 1001 bytes writes 1 byte {BEYOND}",
        ),
        ("copy(host, host, 8, H2D)", INVALID, f"a copy of 8 bytes writes {GONE}"),
        ("rt.cudaFree(block) or copy(host, block, 8, D2H)", INVALID, f"a copy of 8 bytes reads {GONE}"),
        ("rt.cudaFree(block) or rt.cudaMemset(block, 0, c_size_t(8))", INVALID, f"a fill of 8 bytes writes {GONE}"),
    ],
)
def test_an_access_beyond_its_allocation_is_reported(call: str, status: int, message: str, tmp_path: Path) -> None:
    captured = emulated.run(f"{SETUP}\nresults['status'] = {call}\n", tmp_path)
    assert captured.results["status"] == status
    remarks = [note for note in captured.log.notes if note.startswith("remark ")]
    assert remarks == ([f"remark Misuse of the GPU: {message}."] if message else [])


def test_a_copy_into_the_adjacent_allocation_is_refused(tmp_path: Path) -> None:
    """A copy that crosses from one allocation into the next fails although both are valid."""
    code = SETUP + (
        "blocks = sorted((malloc(4096) for _ in range(64)), key=lambda each: each.value)\n"
        "pairs = [(one, other) for one, other in zip(blocks, blocks[1:]) if other.value == one.value + 4096]\n"
        "results['pairs'], results['status'] = len(pairs), copy(pairs[0][0], host, 4097)\n"
    )
    captured = emulated.run(code, tmp_path)
    assert captured.results["pairs"]
    assert captured.results["status"] == INVALID
    (said,) = [note for note in captured.log.notes if note.startswith("remark ")]
    assert said.endswith("a copy of 4097 bytes writes 1 byte beyond the end of an allocation of 4096 bytes.")
