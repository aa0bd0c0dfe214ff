"""Look for DTensor's strided shards once for each call, not once for each tensor of a list.

``clip_grad_norm_`` and fused optimizers hand PyTorch lists of all parameters. At the first such call PyTorch plans each
tensor apart, and for each looks through the whole list for strided shards, so the time grows with the square of their
number: 8.3 of the 12.1 s that a profiler counted for all such plans of Llama 3.1 8B. Without a strided shard in the
arguments the search has no effect. FSDP2 over tensor parallelism has some: what PyTorch's search then derives depends
only on their flags in order, and repetitions change nothing, so it gets one spec for each run of equal flags.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from presim.capture.script.after_import import when_imported

_SEARCH, _FLAG = "_propagate_use_strided_shard_flag", "use_strided_shard_as_shard_order"


def install() -> None:
    """Install for DTensor."""
    when_imported("torch.distributed.tensor._sharding_prop", _search_once)


def _search_once(module: Any) -> None:
    search = getattr(module, _SEARCH, None)
    strided = getattr(module, "_StridedShard", None)
    if search is None or strided is None:
        return
    last_call: Any = None  # the arguments of the last call; held, so that no other gets their id
    shards = SimpleNamespace(args_spec=())  # its strided shards

    def propagate(strategy: Any, call: Any) -> None:
        nonlocal last_call, shards
        if call is not last_call:
            last_call, shards = call, SimpleNamespace(args_spec=_runs_of_shards(call.args_spec, strided))
        if shards.args_spec:
            search(strategy, shards)

    setattr(module, _SEARCH, propagate)


def _runs_of_shards(specs: Iterable[Any], strided: type) -> tuple[Any, ...]:
    """The specs with a strided shard, without those whose flag repeats the one before."""
    with_shards = (spec for spec in specs if any(isinstance(placement, strided) for placement in spec.placements))
    runs = itertools.groupby(with_shards, key=lambda spec: getattr(spec, _FLAG, None))
    return tuple(next(run) for _, run in runs)
