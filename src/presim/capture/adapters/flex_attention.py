"""Describe flex attention kernels as attention, from shapes and mask in the source of inductor's template.

The arguments also have shapes, but not the order of dimensions: in a compiled model, a transposed tensor is passed as
it lies in memory. They are used only for sizes that the source leaves dynamic.

Which blocks a mask skips is computed on the device, where nothing is computed here. Conditions on positions, causal
ones and windows, are known from the source (`flex_masks`). Others (documents, prefixes) are assumed to hold everywhere,
which the result says (`notes`), unless a policy gives the share of blocks that are visited (``attention_share``).
With context parallelism, a rank has queries from all over the sequence, and such a mask shows them half of the keys.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from presim.capture.adapters.flex_masks import Mask, mask_of
from presim.capture.script.after_import import when_imported

_QUERY, _KEY, _VALUE, _GRADIENT = "arg_Q", "arg_K", "arg_V", "arg_DO"
_NAMES = "ZQ|HQ|Q_LEN|KV_LEN|GQA_SHARED_HEADS|QK_HEAD_DIM|V_HEAD_DIM|SPARSE_KV_BLOCK_SIZE"
_SIZE = re.compile(rf"^\s*({_NAMES})(?: : tl\.constexpr)? = (\d+)\s*$", re.MULTILINE)
_NO_BLOCKS = 1 << 30  # PyTorch's size of a block where there is no mask
_FACTS = "presim_source"  # attribute that keeps the source's facts at a kernel


@dataclasses.dataclass(frozen=True)
class KernelFacts:
    """Facts from a kernel's source."""

    mask: Mask
    sizes: Mapping[str, int]  # by the template's names


@dataclasses.dataclass
class MaskPolicy:
    """What is assumed of blocks that masks skip."""

    visited_share: float | None = None  # of all key blocks, by a query block; None: as the mask's positions say
    is_share_used: bool = False
    assumptions: dict[str, None] = dataclasses.field(default_factory=dict)  # sentences, in order


_NO_FACTS = KernelFacts(Mask(), {})
_POLICY = MaskPolicy()


def notes() -> tuple[str, ...]:
    """What was assumed of masks in this process, and a share that no mask asked for."""
    if _POLICY.visited_share is not None and not _POLICY.is_share_used:
        return ("The policy attention_share had no effect: no compiled flex attention with a mask ran.",)
    return tuple(_POLICY.assumptions)


def install(policies: Mapping[str, str] | None) -> None:
    """Parse the source of each kernel while inductor has it.

    ``policies``: as returned by `presim.capture.device_values.policies.parse`.
    """
    share = (policies or {}).get("attention_share")
    _POLICY.visited_share = float(share) if share else None
    when_imported("torch._inductor.async_compile", _read_sources)


def _read_sources(module: Any) -> None:
    make = module.AsyncCompile.triton

    @functools.wraps(make)
    def reading(self: Any, name: str, source: str, *args: Any, **kwargs: Any) -> Any:
        kernel = make(self, name, source, *args, **kwargs)
        if "flex" in name:
            facts = KernelFacts(mask_of(source), sizes_of(source))
            if hasattr(kernel, "result"):  # compiled by another process meanwhile
                kernel.result = functools.partial(_mark_result, kernel.result, facts)
            else:
                setattr(kernel, _FACTS, facts)
        return kernel

    module.AsyncCompile.triton = reading


def _mark_result(result: Callable[..., Any], facts: KernelFacts, *args: Any, **kwargs: Any) -> Any:
    kernel = result(*args, **kwargs)
    setattr(kernel, _FACTS, facts)
    return kernel


def is_flex_attention(name: str, tensors: list[tuple[str, Any]]) -> bool:
    """Whether a kernel is made from the template, by its name and parameters."""
    return "_tem_" in name and "flex" in name and _QUERY in {parameter for parameter, _ in tensors}


def describe(kernel: Any, tensors: list[tuple[str, Any]]) -> str:
    """The kernel's work in the fields of `library_calls`. Tensors are [batch, heads, length, dim]."""
    arguments = dict(tensors)
    query = arguments[_QUERY]
    key, value = (arguments.get(parameter, query) for parameter in (_KEY, _VALUE))  # a tensor used twice is passed once
    facts: KernelFacts = getattr(kernel, _FACTS, _NO_FACTS)
    size = facts.sizes.get
    batch, heads = size("ZQ", query.shape[0]), size("HQ", query.shape[1])
    kv_heads = heads // facts.sizes["GQA_SHARED_HEADS"] if "GQA_SHARED_HEADS" in facts.sizes else key.shape[1]
    width = size("QK_HEAD_DIM", query.shape[-1])
    keys = size("KV_LEN", key.numel() // (batch * kv_heads * width))
    queries = size("Q_LEN", query.numel() // (batch * heads * width))
    visited_keys, is_causal = _visited(facts, queries, keys)
    fields = {
        "is": "attention",
        "direction": "backward" if _GRADIENT in arguments else "forward",
        "batch": batch,
        "heads": heads,
        "kv_heads": kv_heads,
        "q_len": queries,
        "kv_len": visited_keys,
        "head_dim": width,
        "v_head_dim": size("V_HEAD_DIM", value.shape[-1]),
        "causal": int(is_causal),
        "dtype": str(query.dtype).removeprefix("torch."),
        "backend": "flex",
    }
    return " ".join(f"{field}={content}" for field, content in fields.items())


def _visited(facts: KernelFacts, queries: int, keys: int) -> tuple[int, bool]:
    """Keys whose blocks a query visits, in the mean, and whether half of them are hidden by their position."""
    mask, block = facts.mask, facts.sizes.get("SPARSE_KV_BLOCK_SIZE", 0)
    is_masked = 0 < block < _NO_BLOCKS
    if is_masked and _POLICY.visited_share is not None:
        _POLICY.is_share_used = True
        return max(1, round(keys * _POLICY.visited_share)), False
    in_window = mask.window + block  # a block of queries sees the window before its first and up to its last
    is_window = mask.positions == "causal" and mask.window > 0 and 2 * in_window < keys
    if is_masked and not mask.is_whole:
        before = f"the {mask.window:,} keys" if is_window else "all keys"
        assumed = {"causal": f"{before} before a query", "shared": "half of the keys"}.get(mask.positions, "all keys")
        _POLICY.assumptions[
            f"Flex attention of {queries:,} queries and {keys:,} keys: the device computes which blocks its mask "
            f"skips, and {assumed} are assumed to be visited. Where it hides documents, that is too much: --values "
            "attention_share=X gives the share of key blocks that a block of queries visits."
        ] = None
    if is_window:
        return in_window, False
    return keys // 2 if mask.positions == "shared" else keys, mask.positions == "causal"


def sizes_of(source: str) -> dict[str, int]:
    """Constant sizes in a kernel's source, by the template's names."""
    return {name: int(size) for name, size in _SIZE.findall(source)}
