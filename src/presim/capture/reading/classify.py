"""Derive a signature from a launch and its operator.

Library calls (cuBLAS, cuDNN, NCCL, copies) contain exact shapes. A kernel launch has only a name and a grid; its work
follows from its operator. If an operator launches several kernels, its bytes are divided among them in proportion to
their threads.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from presim.capture.reading import (
    compute_kernels,
    expert_kernels,
    extension_kernels,
    library_calls,
    norm_kernels,
    quantised_kernels,
    solver_calls,
)
from presim.capture.reading.launch_operators import LaunchingOperator
from presim.capture.reading.log import Descriptor
from presim.capture.reading.pointwise_kernels import element_operands
from presim.capture.reading.traffic import traffic
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import (
    Elementwise,
    Fused,
    Index,
    Kernel,
    Normalization,
    Optimizer,
    Random,
    Reduction,
    Signature,
    Softmax,
    Sort,
)

_Family: TypeAlias = type[Elementwise | Reduction | Normalization | Softmax | Optimizer | Index | Sort | Random]
_FAMILIES: dict[_Family, tuple[str, ...]] = {
    Normalization: (
        "norm_except_dim",
        "layer_norm",
        "rms_norm",
        "group_norm",
        "batch_norm",
        "instance_norm",
        "layernorm",
        "rmsnorm",
    ),
    Softmax: ("softmax", "nll_loss", "cross_entropy", "logsumexp"),
    Sort: ("sort", "topk", "unique", "histc", "bincount", "kthvalue", "median", "mode"),
    Index: (
        "embedding",
        "index",
        "gather",
        "scatter",
        "take",
        "nonzero",
        "masked_select",
        "put",
        "searchsorted",
        "roll",
        "flip",
        "repeat_interleave",
        "moe_permute",
        "moe_unpermute",
    ),
    Random: (
        "normal",
        "uniform",
        "bernoulli",
        "dropout",
        "rand",
        "randn",
        "randint",
        "random",
        "exponential",
        "multinomial",
    ),
    Reduction: (
        "sum",
        "mean",
        "prod",
        "amax",
        "amin",
        "max",
        "min",
        "argmax",
        "argmin",
        "norm",
        "linalg_vector_norm",
        "var",
        "std",
        "var_mean",
        "std_mean",
        "any",
        "all",
        "cumsum",
        "cumprod",
        "count_nonzero",
        "bincount",
        "aminmax",
    ),
}
_SLEEP_KERNEL = "spin_kernel"  # torch.cuda._sleep, which touches none of its operator's tensors
_EXACT_NAME = {Reduction, Random}  # families whose words are too short to match inside a name


def classify_launch(work: Descriptor, operator: LaunchingOperator | None, share: float) -> Signature:
    """The signature of one device call; ``share``: its share of the operator's bytes, in (0, 1]."""
    if work.family != "kernel":
        return library_calls.signature(work, operator)
    if operator is not None and operator.work is not None:
        return library_calls.signature(operator.work, operator)
    if operator is None or not operator.inputs + operator.outputs or _SLEEP_KERNEL in work.fields.get("name", ""):
        return _bare_kernel(work, operator)
    if (routed := expert_kernels.signature(work, operator)) is not None:
        return routed
    if operator.name.startswith("triton::"):
        return _triton_kernel(work, operator, share)
    special = compute_kernels.signature(work, operator) or extension_kernels.signature(work, operator)
    special = special or quantised_kernels.signature(work, operator) or solver_calls.signature(work, operator)
    if special is None and memory_family(operator.base_name) is Normalization:
        special = norm_kernels.signature(work, operator)
    return special or _memory_bound(work, operator, share)


def memory_family(name: str) -> _Family:
    """The family of memory-bound work of an operator, by its base name."""
    bare = name.removeprefix("_").removeprefix("native_").removesuffix("_backward").removesuffix("_forward")
    if bare.startswith(("foreach", "multi_tensor", "fused_adam", "fused_sgd", "fused_adagrad", "amp_foreach")):
        return Optimizer
    for family, words in _FAMILIES.items():
        if bare in words or (family not in _EXACT_NAME and any(word in bare for word in words)):
            return family
    return Elementwise


def _bare_kernel(work: Descriptor, operator: LaunchingOperator | None) -> Kernel:
    grid, block = work.numbers("grid"), work.numbers("block")
    return Kernel(
        name=work.fields.get("name", "?"),
        grid=(grid[0], grid[1], grid[2]) if len(grid) == 3 else (1, 1, 1),
        block=(block[0], block[1], block[2]) if len(block) == 3 else (1, 1, 1),
        operator=operator.name if operator else "",
    )


def _triton_kernel(work: Descriptor, operator: LaunchingOperator, share: float) -> Signature:
    """Take a kernel's traffic from its analysed code; otherwise assume that it moves each tensor once."""
    if operator.accessed_bytes:
        return _analysed_kernel(operator, share)
    read = sum(operand.bytes for operand in operator.inputs)
    if not operator.outputs:
        return msgspec.structs.replace(_bare_kernel(work, operator), bytes=round(read * share))
    written = sum(operand.bytes for operand in operator.outputs)
    across = min(dtype_bytes(operand.dtype) for operand in operator.outputs) if operator.is_tiled else 0
    return msgspec.structs.replace(_fused(operator, share, read, written), across_bytes=round(across))


def _analysed_kernel(operator: LaunchingOperator, share: float) -> Fused:
    read, written = operator.accessed_bytes
    return msgspec.structs.replace(
        _fused(operator, share, read, written),
        products=tuple((dtype, round(flops * share)) for dtype, flops in operator.products),
        programs=operator.programs,
        longest=operator.longest / 100,
    )


def _fused(operator: LaunchingOperator, share: float, read: float, written: float) -> Fused:
    """A kernel's share of the bytes that it reads and writes, of its largest tensor and of its instructions."""
    largest = max(operator.inputs + operator.outputs, key=lambda operand: operand.elements)
    plain, special, wide = (round(count * share) for count in [*operator.instructions, 0, 0, 0][:3])
    return Fused(
        operator.name.removeprefix("triton::"),
        round(read * share),
        round(written * share),
        round(largest.elements * share),
        largest.dtype,
        plain=plain,
        special=special,
        wide=wide,
    )


def _memory_bound(work: Descriptor, operator: LaunchingOperator, share: float) -> Signature:
    family = memory_family(operator.base_name)
    read, written = traffic(operator, family)
    largest = max(operator.inputs + operator.outputs, key=lambda operand: operand.elements)
    special: dict[str, int] = {"row": operator.row} if family in (Normalization, Softmax) else {}
    if family is Elementwise:
        special = element_operands(work, operator)
    return family(
        bytes_read=round(read * share),
        bytes_written=round(written * share),
        elements=round(largest.elements * share),
        dtype=largest.dtype,
        fused_tensors=max(1, round(largest.tensors * share)),
        operator=operator.name,
        **special,
    )
