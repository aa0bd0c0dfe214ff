"""Sizes of PyTorch's data types, by their names without the prefix."""

from __future__ import annotations

_DTYPE_BYTES = {
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "uint64": 8,
    "float32": 4,
    "tf32": 4,
    "int32": 4,
    "uint32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "float4_e2m1fn_x2": 1,
}


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element; 1 for an unknown type (raw bytes)."""
    return _DTYPE_BYTES.get(dtype, 1)


def is_dtype(name: str) -> bool:
    """Whether the name is a known data type."""
    return name in _DTYPE_BYTES
