"""Products that torch.compile writes from a template (``max_autotune``): their code and grid, as Triton has them.

Other kernels that it generates have no products; what they do is known from their source (`triton_arithmetic`).
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TEMPLATE = "triton_tem_"  # how inductor names them


def compiled_template(kernel: Any) -> Any:
    """What Triton compiled for such a kernel, with ``asm`` and ``metadata``; None for any other."""
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
    """The grid that such a kernel is launched with; None where it is not given as numbers."""
    meta = getattr(kernel, "inductor_meta", {})
    extra = args[len(kernel.fn.arg_names) :]
    given = dict(zip(meta.get("extra_launcher_args", ()), extra))
    sizes = [given.get(size, size) for size in meta.get("fixed_grid", ())]
    return tuple(sizes) if sizes and all(isinstance(size, int) for size in sizes) else None
