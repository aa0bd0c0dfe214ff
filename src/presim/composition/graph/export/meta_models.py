"""Models on the meta device, from a config or a factory, with few of their equal blocks."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from presim.composition.graph.recording import Repeats


def from_config(path: str, dtype: torch.dtype) -> torch.nn.Module:
    """The model of a ``config.json``."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
    config.use_cache = False
    if hasattr(config, "presim_source"):  # of a named model
        del config.presim_source
    with _on_meta(dtype):
        return _factory(transformers, config)(config)


def _factory(transformers: Any, config: Any) -> Callable[[Any], torch.nn.Module]:
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)  # type: ignore[no-any-return]
    return transformers.AutoModelForCausalLM.from_config  # type: ignore[no-any-return]


def from_factory(spec: str, dtype: torch.dtype) -> torch.nn.Module:
    """The model that ``package.module:function`` returns."""
    module, _, function = spec.partition(":")
    sys.path.insert(0, "")
    with _on_meta(dtype):
        return getattr(importlib.import_module(module), function)()  # type: ignore[no-any-return]


@contextlib.contextmanager
def _on_meta(dtype: torch.dtype) -> Iterator[None]:
    """Build tensors on the meta device, those of floating-point numbers as ``dtype``."""
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def shorten(model: torch.nn.Module, keep: int = 4) -> list[Repeats]:
    """Cut equal blocks that follow each other in the outermost module lists to ``keep`` at most; returns all blocks."""
    cut: list[Repeats] = []
    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.ModuleList) or len(module) < 2:
            continue
        if any(name.startswith(outer.name + ".") for outer in cut):
            continue
        structures = [_structure(block) for block in module]
        if len(set(structures)) == len(structures):
            continue
        traced_blocks: list[torch.nn.Module] = []
        start = 0
        for _, run in itertools.groupby(structures):
            count = len(list(run))
            traced = min(keep, count)
            cut.append(Repeats(name, count, traced, len(traced_blocks)))
            traced_blocks += module[start : start + traced]
            start += count
        del module[:]
        module.extend(traced_blocks)
    return cut


_NUMBERS = ("layer_number", "layer_id", "layer_name", "prefix")  # attributes that hold a block's number


def _structure(module: torch.nn.Module) -> str:
    """Structure of a block, independent of its position."""
    lines = []
    for name, part in module.named_modules():
        plain = {
            key: value
            for key, value in vars(part).items()
            if not key.startswith("_")
            and isinstance(value, (int, float, str, bool, tuple))
            and key not in _NUMBERS
            and "idx" not in key
        }
        lines.append(f"{name} {type(part).__name__} {part.extra_repr()} {sorted(plain.items())}")
    lines += [f"{name} {tuple(p.shape)} {p.dtype}" for name, p in module.named_parameters()]
    return "\n".join(lines)
