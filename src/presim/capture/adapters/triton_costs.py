"""The cost of running one TTIR operation: FLOPs of products, bytes by tensor, instructions of all threads.

Instructions are of three kinds for which GPUs have different throughputs (CUDA C++ Programming Guide, throughput of
native arithmetic instructions). Instructions per function or division are approximate, following nvcc's libraries.
Addresses and masks are not counted, because a thread computes one for several elements.
"""

from __future__ import annotations

import re
from collections import Counter

from presim.capture.adapters.triton_flow import PRODUCTS, Flow, accessed_pointer, reads_memory, writes_memory
from presim.capture.adapters.triton_ir import Op, Type

Work = Counter[
    tuple[str, str]
]  # ("product", dtype): FLOPs; ("load"/"store", tensor): bytes; ("do", kind): instructions

UNKNOWN = "?"  # a tensor whose address was loaded from memory
_FUNCTIONS = {  # function -> plain and special instructions in 32 bits
    "exp": (6, 1), "exp2": (3, 1), "log": (6, 1), "log2": (4, 1), "log1p": (10, 1), "rsqrt": (1, 1), "sqrt": (4, 1),
    "tanh": (12, 2), "erf": (24, 1), "sin": (20, 2), "cos": (20, 2), "pow": (30, 4), "precise_divf": (9, 1),
    "precise_sqrt": (8, 1), "divf": (4, 1),
}  # fmt: skip
_WIDE_DIVISION: dict[str, float] = {"special": 1, "plain": 2, "wide": 8}
_FREE = frozenset(
    [
        "arith.constant",
        "arith.bitcast",
        "tt.bitcast",
        "tt.splat",
        "tt.unsplat",
        "tt.expand_dims",
        "tt.broadcast",
        "tt.reshape",
        "tt.trans",
        "tt.join",
        "tt.split",
        "tt.cat",
        "tt.make_range",
        "tt.get_program_id",
        "tt.get_num_programs",
        "tt.addptr",
        "tt.make_tensor_descriptor",
        "tt.advance",
        "tt.make_tensor_ptr",
        "tt.int_to_ptr",
        "tt.ptr_to_int",
        "ub.poison",
    ]
)
_CONVERSIONS = ("arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui")
_VECTOR = 16  # maximum bytes per load or store instruction
_DTYPES = {
    "bf16": "bfloat16", "f16": "float16", "f64": "float64", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
    "f8E4M3FNUZ": "float8_e4m3fn", "f8E5M2FNUZ": "float8_e5m2", "i8": "int8",
}  # fmt: skip
# Input precision of a float32 product -> the type whose units it uses, and the number of products of that type.
_PRECISIONS = {"tf32": ("tf32", 1), "tf32x3": ("tf32", 3), "bf16x3": ("bfloat16", 3), "bf16x6": ("bfloat16", 6)}
_FORMATS = {"e2m1": "float4_e2m1fn_x2", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_SCALED_SINCE = 100  # compute capability times ten from which block-scaled products exist


def cost(op: Op, flow: Flow, threads: int, capability: int) -> Work:
    """The cost of an operation without its regions, run once by a program of ``threads`` threads."""
    work: Work = Counter()
    if op.name in PRODUCTS:
        dtype, flops = _product(op, capability)
        work["product", dtype] += flops
    if reads_memory(op) or writes_memory(op):
        accessed_bytes = _accessed_bytes(op)
        tensor = flow.origin.get(accessed_pointer(op), UNKNOWN)
        work["do", "plain"] += -(-accessed_bytes // _VECTOR)
        for kind, is_access in (("load", reads_memory(op)), ("store", writes_memory(op))):
            if is_access:
                work[kind, tensor] += accessed_bytes
    elif op.types and not flow.data.isdisjoint(op.results):
        for kind, count in _instructions(op, threads).items():
            work["do", kind] += round(count)
    return work


def _accessed_bytes(op: Op) -> int:
    """Bytes moved; descriptor operations and gathers have them in the other type."""
    if "descriptor" not in op.name:
        return op.types[0].bytes if op.types else 0
    return op.types[-1].bytes if op.types else 0


def _product(op: Op, capability: int) -> tuple[str, int]:
    """The type whose peak bounds a product, and its FLOPs (two per multiply-add)."""
    lhs, result = op.types[0], op.types[-1]
    depth = lhs.shape[-1] if lhs.shape else 1
    if op.name == "tt.dot_scaled":
        formats = re.findall(r"(?:lhs|rhs) = (\w+)", op.text)
        depth *= 2 if formats[:1] == ["e2m1"] else 1
        kinds = {_FORMATS.get(name, "bfloat16") for name in formats}
        if capability < _SCALED_SINCE or "bfloat16" in kinds or not kinds:
            return "bfloat16", 2 * result.elements * depth
        dtype = kinds.pop() if len(kinds) == 1 else "float8_e4m3fn"
        return dtype, 2 * result.elements * depth
    flops = 2 * result.elements * depth
    if lhs.dtype == "f32":
        precision = re.search(r"inputPrecision = (\w+)", op.text)
        dtype, times = _PRECISIONS.get(precision[1] if precision else "ieee", ("float32", 1))
        return dtype, flops * times
    return _DTYPES.get(lhs.dtype, "float16"), flops


def _instructions(op: Op, threads: int) -> dict[str, float]:
    """Instructions by kind. If there are fewer elements than threads, every thread computes them."""
    if op.name in _FREE or op.name.startswith(("scf.", "cf.", "tt.return", "tt.call")) or op.name in PRODUCTS:
        return {}
    if op.name in ("tt.reduce", "tt.scan"):
        combining = [inner for block in op.regions[0] for inner in block.ops[:-1]]
        steps = 2 if op.name == "tt.scan" else 1
        count_per_element = Counter[str]()
        for inner in combining:
            count_per_element.update(_per_element(inner))
        return {kind: steps * count * max(op.types[0].elements, threads) for kind, count in count_per_element.items()}
    elements = max(op.types[-1].elements, threads)
    return {kind: count * elements for kind, count in _per_element(op).items()}


def _per_element(op: Op) -> dict[str, float]:
    """Instructions per element."""
    name = op.name.split(".")[-1]
    kinds: list[Type] = op.types or [Type((), "i32")]
    wide: dict[str, float] = {"wide": 1} if name in _PLAIN_WIDE else {"wide": 8, "special": 1}
    if "f64" in {kind.dtype for kind in kinds}:
        if op.name in _CONVERSIONS:
            return {"special": 1}
        return _WIDE_DIVISION if name == "divf" else wide
    if name == "extern_elementwise":
        symbol = re.search(r'symbol = "__nv_(\w+?)f?"', op.text)
        name = symbol[1] if symbol else name
    plain, special = _FUNCTIONS.get(name, (1, 0))
    return {"plain": plain, "special": special}


_PLAIN_WIDE = frozenset(
    ["addf", "subf", "mulf", "negf", "maxnumf", "minnumf", "maximumf", "minimumf", "cmpf", "select", "absf", "fma"]
)
