"""Look for DTensor's strided shards once for each call, not once for each tensor of a list.

``clip_grad_norm_`` and fused optimizers hand PyTorch lists of all parameters. At the first such call PyTorch plans each
tensor apart, and for each looks through the whole list for strided shards, so the time grows with the square of their
number: 8.3 of the 12.1 s that a profiler counted for all such plans of Llama 3.1 8B. Without a strided shard in the
arguments the search has no effect.
"""

from __future__ import annotations

from typing import Any

from presim.capture.script.after_import import when_imported

_SEARCH = "_propagate_use_strided_shard_flag"


def install() -> None:
    """Install for DTensor."""
    when_imported("torch.distributed.tensor._sharding_prop", _search_once)


def _search_once(module: Any) -> None:
    search = getattr(module, _SEARCH, None)
    strided = getattr(module, "_StridedShard", None)
    if search is None or strided is None:
        return
    last_call: Any = None  # the arguments of the last call; held, so that no other gets their id
    is_strided = False

    def propagate(strategy: Any, call: Any) -> None:
        nonlocal last_call, is_strided
        if call is not last_call:
            placements = (placement for spec in call.args_spec for placement in spec.placements)
            last_call, is_strided = call, any(isinstance(placement, strided) for placement in placements)
        if is_strided:
            search(strategy, call)

    setattr(module, _SEARCH, propagate)
