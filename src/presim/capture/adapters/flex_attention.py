"""Flex attention as attention: inductor's template has the shapes in its arguments and the mask in its source.

Which blocks a mask leaves out is worked out on the device, where nothing is computed. A mask whose function compares
query and key position is taken to be causal; other conditions (documents, prefixes) are taken to hold everywhere. Under
context parallelism a rank has queries from all over the sequence: such a mask shows them half of the keys.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from presim.capture.script.after_import import when_imported

_QUERY, _KEY, _VALUE, _GRADIENT = "arg_Q", "arg_K", "arg_V", "arg_DO"
_ASSIGNMENT = re.compile(r"^\s*(tmp\d+) = (.+?)\s*$", re.MULTILINE)
_COMPARISON = re.compile(r"(tmp\d+) (>=|<=|>|<) (tmp\d+)")
_WORD = re.compile(r"tmp\d+")
_MARK = "presim_mask"  # attribute of a kernel: what its source says, which the loaded kernel has no more


def install() -> None:
    """Read the source of each kernel while inductor has it."""
    when_imported("torch._inductor.async_compile", _read_sources)


def _read_sources(module: Any) -> None:
    make = module.AsyncCompile.triton

    @functools.wraps(make)
    def reading(self: Any, name: str, source: str, *args: Any, **kwargs: Any) -> Any:
        made = make(self, name, source, *args, **kwargs)
        if "flex" in name and (mask := mask_of(source)):
            if hasattr(made, "result"):  # compiled by another process meanwhile
                made.result = functools.partial(_mark_result, made.result, mask)
            else:
                setattr(made, _MARK, mask)
        return made

    module.AsyncCompile.triton = reading


def _mark_result(result: Callable[..., Any], mask: str, *args: Any, **kwargs: Any) -> Any:
    kernel = result(*args, **kwargs)
    setattr(kernel, _MARK, mask)
    return kernel


def is_one(name: str, tensors: list[tuple[str, Any]]) -> bool:
    """Whether a kernel, by its name and its parameters, is made from the template."""
    return "_tem_" in name and "flex" in name and _QUERY in {parameter for parameter, _ in tensors}


def describe(kernel: Any, tensors: list[tuple[str, Any]]) -> str:
    """What the kernel does, in the fields that `library_calls` reads. Tensors are [batch, heads, length, dim]."""
    given = dict(tensors)
    query = given[_QUERY].shape
    mask = getattr(kernel, _MARK, "")
    key, value = (given[one].shape if one in given else query for one in (_KEY, _VALUE))  # one tensor is passed once
    fields = {
        "is": "attention",
        "direction": "backward" if _GRADIENT in given else "forward",
        "batch": query[0],
        "heads": query[1],
        "kv_heads": key[1],
        "q_len": query[2],
        "kv_len": key[2] // 2 if mask == "shared" else key[2],  # what a query sees, on average over the pieces
        "head_dim": query[3],
        "v_head_dim": value[3],
        "causal": int(mask == "causal"),
        "dtype": str(given[_QUERY].dtype).removeprefix("torch."),
        "backend": "flex",
    }
    return " ".join(f"{field}={content}" for field, content in fields.items())


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
