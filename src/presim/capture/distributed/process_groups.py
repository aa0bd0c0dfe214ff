"""Record the members of each process group: PyTorch's record of a call lacks unevenly spaced ranks."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist

from presim.capture.distributed.shared_tokens import SharedTokens
from presim.capture.script.hook import Hook


def install(hook: Hook, shared_tokens: SharedTokens) -> None:
    """Install before the script runs; no effect if torch was built without distributed."""
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if not dist.is_available() or not hasattr(module, "_new_process_group_helper"):
        return
    create = module._new_process_group_helper

    def create_and_record(size: int, rank: int, ranks: list[int], *args: Any, **kwargs: Any) -> Any:
        made = create(size, rank, ranks, *args, **kwargs)
        group = made[0] if isinstance(made, tuple) else made
        name = module._world.pg_names.get(group)
        if name and ranks:
            hook.record_group(str(name), ranks)
            shared_tokens.add_group(str(kwargs.get("group_desc") or ""), ranks)
        return made

    module._new_process_group_helper = create_and_record
