"""The runs of a signature, one after the other, under its settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from presim.cost.profile.calls import calls
from presim.cost.profile.kernels.attention_calls import attention, backend
from presim.cost.profile.kernels.convolutions import convolution
from presim.cost.profile.kernels.copies import copy
from presim.cost.profile.kernels.operator_calls import bind
from presim.cost.profile.kernels.products import grouped_products, product, scaled_products
from presim.trace.signatures import Attention, Convolution, Copy, Gemm, GroupedGemm, MemoryBound, Signature


class SignatureRun(NamedTuple):
    """A call that does the work once, and the part of it that PyTorch launches first and is not measured."""

    call: Callable[[], Any]
    front: Callable[[], Any] | None = None


@contextlib.contextmanager
def prepared(signature: Signature) -> Iterator[Iterator[SignatureRun]]:
    """Calls that each do the work once; several if the signature leaves the layout of its operands open.

    Each one is set up when it is requested, so that only one occupies memory. A run's result is freed at once, and
    PyTorch's allocator gives the same memory to the next one, without waiting for the device.

    Raises:
        NotImplementedError: this signature cannot be set up; `plan.obstacle` says so beforehand.
    """
    settings = backend(signature) if isinstance(signature, Attention) else _precision(signature)
    with settings:
        yield _runs(signature)


def _runs(signature: Signature) -> Iterator[SignatureRun]:
    if isinstance(signature, MemoryBound) and (proposed_calls := calls(signature)):
        for call in proposed_calls:
            yield SignatureRun(bind(call), bind(call.first) if call.first else None)
    else:
        yield from map(SignatureRun, _compute_bound(signature))


def _compute_bound(signature: Signature) -> Iterator[Callable[[], Any]]:
    if isinstance(signature, Gemm):
        yield from scaled_products(signature) if "float8" in signature.dtype else [product(signature)]
    elif isinstance(signature, GroupedGemm):
        yield from grouped_products(signature)
    elif isinstance(signature, Attention):
        yield attention(signature)
    elif isinstance(signature, Convolution):
        yield convolution(signature)
    elif isinstance(signature, Copy):
        yield copy(signature)
    else:
        raise NotImplementedError(f"no way to set up {type(signature).__name__}")


@contextlib.contextmanager
def _precision(signature: Signature) -> Iterator[None]:
    """Use TF32 if the signature says so, whatever the default."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    tf32 = getattr(signature, "compute", "") == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
