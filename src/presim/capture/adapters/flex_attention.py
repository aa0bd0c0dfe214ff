"""Flex attention as attention: inductor's template has shapes and mask in its source.

Its arguments tell shapes too, but not their order: where a whole model is compiled, a transposed tensor is handed over
as it lies in memory. They are asked only for what the source leaves open (sizes that change from call to call).

Which blocks a mask leaves out is worked out on the device, where nothing is computed. A mask whose function compares
query and key position is taken to be causal; other conditions (documents, prefixes) are taken to hold everywhere. Under
context parallelism a rank has queries from all over the sequence: such a mask shows them half of the keys.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from presim.capture.script.after_import import when_imported

_QUERY, _KEY, _VALUE, _GRADIENT = "arg_Q", "arg_K", "arg_V", "arg_DO"
_ASSIGNMENT = re.compile(r"^\s*(tmp\d+) = (.+?)\s*$", re.MULTILINE)
_COMPARISON = re.compile(r"(tmp\d+) (>=|<=|>|<) (tmp\d+)")
_WORD = re.compile(r"tmp\d+")
_NAMES = "ZQ|HQ|Q_LEN|KV_LEN|GQA_SHARED_HEADS|QK_HEAD_DIM|V_HEAD_DIM"
_SIZE = re.compile(rf"^\s*({_NAMES})(?: : tl\.constexpr)? = (\d+)\s*$", re.MULTILINE)
_MARK = "presim_source"  # attribute of a kernel: what its source says, which the loaded kernel has no more


@dataclasses.dataclass(frozen=True)
class Source:
    """What a kernel's source says."""

    mask: str
    sizes: Mapping[str, int]  # in the template's names


_SILENT = Source("", {})


def install() -> None:
    """Read the source of each kernel while inductor has it."""
    when_imported("torch._inductor.async_compile", _read_sources)


def _read_sources(module: Any) -> None:
    make = module.AsyncCompile.triton

    @functools.wraps(make)
    def reading(self: Any, name: str, source: str, *args: Any, **kwargs: Any) -> Any:
        made = make(self, name, source, *args, **kwargs)
        if "flex" in name:
            said = Source(mask_of(source), sizes_of(source))
            if hasattr(made, "result"):  # compiled by another process meanwhile
                made.result = functools.partial(_mark_result, made.result, said)
            else:
                setattr(made, _MARK, said)
        return made

    module.AsyncCompile.triton = reading


def _mark_result(result: Callable[..., Any], said: Source, *args: Any, **kwargs: Any) -> Any:
    kernel = result(*args, **kwargs)
    setattr(kernel, _MARK, said)
    return kernel


def is_one(name: str, tensors: list[tuple[str, Any]]) -> bool:
    """Whether a kernel, by its name and its parameters, is made from the template."""
    return "_tem_" in name and "flex" in name and _QUERY in {parameter for parameter, _ in tensors}


def describe(kernel: Any, tensors: list[tuple[str, Any]]) -> str:
    """What the kernel does, in the fields that `library_calls` reads. Tensors are [batch, heads, length, dim]."""
    given = dict(tensors)
    query = given[_QUERY]
    key, value = (given.get(one, query) for one in (_KEY, _VALUE))  # one tensor is passed once
    said: Source = getattr(kernel, _MARK, _SILENT)
    size = said.sizes.get
    batch, heads = size("ZQ", query.shape[0]), size("HQ", query.shape[1])
    kv_heads = heads // said.sizes["GQA_SHARED_HEADS"] if "GQA_SHARED_HEADS" in said.sizes else key.shape[1]
    width = size("QK_HEAD_DIM", query.shape[-1])
    keys = size("KV_LEN", key.numel() // (batch * kv_heads * width))
    fields = {
        "is": "attention",
        "direction": "backward" if _GRADIENT in given else "forward",
        "batch": batch,
        "heads": heads,
        "kv_heads": kv_heads,
        "q_len": size("Q_LEN", query.numel() // (batch * heads * width)),
        "kv_len": keys // 2 if said.mask == "shared" else keys,  # what a query sees, on average over the pieces
        "head_dim": width,
        "v_head_dim": size("V_HEAD_DIM", value.shape[-1]),
        "causal": int(said.mask == "causal"),
        "dtype": str(query.dtype).removeprefix("torch."),
        "backend": "flex",
    }
    return " ".join(f"{field}={content}" for field, content in fields.items())


def sizes_of(source: str) -> dict[str, int]:
    """Sizes that a kernel's source has as numbers, in the template's names."""
    return {name: int(size) for name, size in _SIZE.findall(source)}


def mask_of(source: str) -> str:
    """What the mask in a kernel's source says of positions.

    Args:
        source: of the whole generated file. The template calls the query's position m and the key's n; the mask
            gives each a name of its own, may look them up in a table, and compares.

    Returns:
        ``causal`` where the query's position has to be at least the key's; ``shared`` where so of positions that were
        looked up or worked out first (context parallelism hands out sequences in pieces); ``""`` otherwise.
    """
    kinds: dict[str, str] = {}  # of each name: made from the query's position alone, from the key's alone, from both
    plain: set[str] = set()
    for name, expression in _ASSIGNMENT.findall(source):
        if compared := _COMPARISON.fullmatch(expression):
            left, sign, right = compared.groups()
            query, key = (left, right) if sign in (">=", ">") else (right, left)
            if kinds.get(query) == "m" and kinds.get(key) == "n":
                return "causal" if {query, key} <= plain else "shared"
        used = {kinds[word] for word in _WORD.findall(expression) if word in kinds}
        if expression in ("(m)", "(n)"):
            used = {expression[1]}
            plain.add(name)
        kinds.pop(name, None)
        if used:
            kinds[name] = used.pop() if len(used) == 1 else "both"
    return ""
