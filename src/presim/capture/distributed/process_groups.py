"""Record the members of each process group when it is created.

PyTorch's record of a call lacks unevenly spaced ranks, and the order in which groups of the same ranks were created.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Any

import torch.distributed as dist

from presim.capture.distributed.blocking_wait import install_if_requested
from presim.capture.distributed.shared_tokens import SharedTokens
from presim.capture.script.after_import import when_imported
from presim.capture.script.hook import Hook

_MODEL_PARALLEL = re.compile(r"(tp|cp|pp|sp|tensor|context|pipeline|sequence|model)(_?parallel)?", re.IGNORECASE)


def install(hook: Hook, shared_tokens: SharedTokens) -> None:
    """Install before the script runs; no effect if torch was built without distributed."""
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if not dist.is_available() or not hasattr(module, "_new_process_group_helper"):
        return
    create = module._new_process_group_helper

    def create_and_record(size: int, rank: int, ranks: list[int], *args: Any, **kwargs: Any) -> Any:
        group_and_options = create(size, rank, ranks, *args, **kwargs)
        group = group_and_options[0] if isinstance(group_and_options, tuple) else group_and_options
        name = module._world.pg_names.get(group)
        install_if_requested()
        if name:
            hook.record_group(str(name), ranks or range(size))
        if name and ranks:
            shared_tokens.add_group(str(kwargs.get("group_desc") or ""), ranks)
        return group_and_options

    module._new_process_group_helper = create_and_record
    _record_splits(hook)
    when_imported("torch.distributed.device_mesh", lambda device_mesh: _record_meshes(device_mesh.DeviceMesh, hook))


def _record_meshes(mesh_type: Any, hook: Hook) -> None:
    """Dimensions of meshes that split a model over all ranks: PyTorch gives them its default group, without a name."""
    construct = mesh_type.__init__

    @functools.wraps(construct)
    def construct_and_record(mesh: Any, *args: Any, **kwargs: Any) -> None:
        construct(mesh, *args, **kwargs)
        if not dist.is_initialized():
            return
        for dimension, name in enumerate(mesh.mesh_dim_names or ()):
            if _MODEL_PARALLEL.fullmatch(name) and 1 < mesh.size(dimension) == dist.get_world_size():
                hook.record_mesh(name)

    mesh_type.__init__ = construct_and_record


def _record_splits(hook: Hook) -> None:
    """Groups that are split off another one are created by the group itself, with ranks of that group."""
    group_type: Any = dist.ProcessGroup
    split = getattr(group_type, "split_group", None)
    if split is None:
        return

    @functools.wraps(split)
    def split_and_record(group: Any, ranks: list[int], *args: Any, **kwargs: Any) -> Any:
        subgroup = split(group, ranks, *args, **kwargs)
        if subgroup is not None:
            members = dist.get_process_group_ranks(group)
            hook.record_group(str(subgroup.group_name), [members[rank] for rank in ranks])
        return subgroup

    group_type.split_group = split_and_record
