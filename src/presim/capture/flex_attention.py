"""Flex attention as attention: inductor's template has the shapes in its arguments and the mask in its source.

Which blocks a mask leaves out is worked out on the device, where nothing is computed. A mask whose function compares
query and key position is taken to be causal; other conditions (documents, prefixes) are taken to hold everywhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from presim.capture.after_import import when_imported

_QUERY, _KEY, _VALUE, _GRADIENT = "arg_Q", "arg_K", "arg_V", "arg_DO"
_POSITION = re.compile(r"^\s*(\w+) = \((m|n)\)\s*$", re.MULTILINE)
_COMPARISON = re.compile(r"= (\w+) (>=|<=|>|<) (\w+)\s*$", re.MULTILINE)
_MARK = "presim_causal"  # attribute of a kernel whose source says so: the loaded kernel has its source no more


def install() -> None:
    """Read the source of each kernel while inductor has it."""
    when_imported("torch._inductor.async_compile", _read_sources)


def _read_sources(module: Any) -> None:
    make = module.AsyncCompile.triton

    @functools.wraps(make)
    def reading(self: Any, name: str, source: str, *args: Any, **kwargs: Any) -> Any:
        made = make(self, name, source, *args, **kwargs)
        if "flex" in name and is_causal(source):
            if hasattr(made, "result"):  # compiled by another process meanwhile
                made.result = functools.partial(_mark_result, made.result)
            else:
                setattr(made, _MARK, True)
        return made

    module.AsyncCompile.triton = reading


def _mark_result(result: Callable[[], Any]) -> Any:
    kernel = result()
    setattr(kernel, _MARK, True)
    return kernel


def is_one(name: str, tensors: list[tuple[str, Any]]) -> bool:
    """Whether a kernel, by its name and its parameters, is made from the template."""
    return "_tem_" in name and "flex" in name and _QUERY in {parameter for parameter, _ in tensors}


def describe(kernel: Any, tensors: list[tuple[str, Any]]) -> str:
    """What the kernel does, in the fields that `library_calls` reads. Tensors are [batch, heads, length, dim]."""
    given = dict(tensors)
    query = given[_QUERY].shape
    key, value = (given[one].shape if one in given else query for one in (_KEY, _VALUE))  # one tensor is passed once
    fields = {
        "is": "attention",
        "direction": "backward" if _GRADIENT in given else "forward",
        "batch": query[0],
        "heads": query[1],
        "kv_heads": key[1],
        "q_len": query[2],
        "kv_len": key[2],
        "head_dim": query[3],
        "v_head_dim": value[3],
        "causal": int(getattr(kernel, _MARK, False)),
        "dtype": str(given[_QUERY].dtype).removeprefix("torch."),
        "backend": "flex",
    }
    return " ".join(f"{field}={content}" for field, content in fields.items())


def is_causal(source: str) -> bool:
    """Whether the mask in a kernel's source wants the query's position to be at least the key's.

    The template calls them m and n, and the mask gives each a name of its own before it compares them.
    """
    names: dict[str, set[str]] = {"m": set(), "n": set()}
    for given, position in _POSITION.findall(source):
        names[position].add(given)
    queries, keys = names["m"], names["n"]
    return any(
        (sign in (">=", ">") and left in queries and right in keys)
        or (sign in ("<=", "<") and left in keys and right in queries)
        for left, sign, right in _COMPARISON.findall(source)
    )
