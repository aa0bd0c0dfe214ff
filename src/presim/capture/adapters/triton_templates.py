"""Code and grid of products that torch.compile generates from a template (``max_autotune``).

Its other kernels contain no products; their work follows from their source (`triton_arithmetic`).
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TEMPLATE = "triton_tem_"  # prefix of inductor's names for them


def compiled_template(kernel: Any) -> Any:
    """The compiled template kernel with ``asm`` and ``metadata``; None for any other kernel."""
    name = kernel.fn.__name__
    launchers: list[Any] = getattr(kernel, "launchers", [])
    if not name.startswith(_TEMPLATE) or len(launchers) != 1:
        return None
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

    path = Path(triton_cache_dir(kernel.device_props.index), launchers[0].cache_hash, f"{name}.ttir")
    if not path.is_file():
        return None
    metadata = types.SimpleNamespace(num_warps=launchers[0].config.num_warps)
    return types.SimpleNamespace(asm={"ttir": path.read_text()}, metadata=metadata)


def template_grid(kernel: Any, args: Sequence[Any]) -> tuple[int, ...] | None:
    """The grid of a template kernel's launch; None if it is not given as numbers."""
    meta = getattr(kernel, "inductor_meta", {})
    extra_arguments = args[len(kernel.fn.arg_names) :]
    extra_argument_by_name = dict(zip(meta.get("extra_launcher_args", ()), extra_arguments))
    sizes = [extra_argument_by_name.get(size, size) for size in meta.get("fixed_grid", ())]
    return tuple(sizes) if sizes and all(isinstance(size, int) for size in sizes) else None
