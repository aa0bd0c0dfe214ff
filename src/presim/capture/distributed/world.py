"""Patch torch.distributed so that a process can be one rank of a world in which only some ranks run.

* Gloo connects every pair of ranks when a group is created, and absent ranks cannot answer. CPU groups use the
  launcher's
  store instead (`presim.capture.distributed.cpu_group`).
* Ranks always rendezvous at the launcher's store, whether the script uses ``tcp://`` with its own address, a file, or a
  store hosted by rank 0.
* A TCPStore client that knows the world size sleeps up to one millisecond per rank before it connects (16 s in a world
  of 16,384), so it is not given the size.
* The store of each group lists the members that run, so that the launcher answers only for the others.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

from presim.capture.rendezvous.present_ranks import group_prefix
from presim.trace.representatives import Representatives

_joined: list[bool] = []  # not empty: this process joined a process group


def has_joined() -> bool:
    """Whether the script joined a process group, which it may have left since."""
    return bool(_joined)


def install(port: int, rank: int, representatives: Representatives) -> None:
    """Install before the script runs; no effect if torch was built without distributed.

    ``port``: port of the launcher's store on this machine.
    """
    if not dist.is_available():
        return
    _replace_gloo(rank, representatives)
    _use_store(port)
    _list_present_members(representatives.captured)
    group: Any = dist.ProcessGroup
    group.monitored_barrier = lambda self, timeout=None, wait_all_ranks=False: self.barrier().wait()


def _replace_gloo(rank: int, representatives: Representatives) -> None:
    module: Any = sys.modules["torch.distributed.distributed_c10d"]
    if not hasattr(module, "_create_gloo_process_group"):
        return
    create = _creator(rank, representatives)

    def create_gloo(opts: Any, backend_options: Any) -> Any:
        return create(opts.store, opts.group_rank, opts.group_size, opts.global_ranks_in_group)

    module._create_gloo_process_group = create_gloo
    plugin = module.Backend._plugins.get("GLOO")
    if plugin is not None:
        module.Backend._plugins["GLOO"] = plugin._replace(creator_fn=create_gloo)


def _creator(rank: int, representatives: Representatives) -> Any:
    """Creates our group if PyTorch supports backends in Python (2.14), else PyTorch's fake one."""
    from torch._C._distributed_c10d import FakeProcessGroup

    try:
        from presim.capture.distributed.cpu_group import CpuGroup
    except ImportError:
        fake = getattr(FakeProcessGroup, "_create_internal", None) or FakeProcessGroup
        return lambda store, group_rank, size, members: fake(group_rank, size)

    def create(store: Any, group_rank: int, size: int, members: list[int]) -> Any:
        return CpuGroup(store, group_rank, members or list(range(size)), representatives)

    return create


def _use_store(port: int) -> None:
    module: Any = sys.modules["torch.distributed.rendezvous"]

    def create_store(hostname: str, requested: int, rank: int, world_size: int, timeout: Any, *args: Any) -> Any:
        return dist.TCPStore("127.0.0.1", port, None, is_master=False, timeout=timeout)

    def file_rendezvous(url: str, timeout: Any = module.default_pg_timeout, **kwargs: Any) -> Iterator[Any]:
        query = module._query_to_dict(module.urlparse(url).query)
        yield create_store("", 0, 0, 0, timeout), int(query["rank"]), int(query["world_size"])
        raise RuntimeError("Unable to perform re-rendezvous using file:// method")  # same as PyTorch's handler

    module._create_c10d_store = create_store
    module._rendezvous_handlers["file"] = file_rendezvous


def _list_present_members(present: tuple[int, ...]) -> None:
    module: Any = sys.modules["torch.distributed.distributed_c10d"]
    create = module._new_process_group_helper

    @functools.wraps(create)
    def create_named(size: int, rank: Any, members: Any, backend: Any, store: Any, *args: Any, **kwargs: Any) -> Any:
        _joined.append(True)
        if len(present) > 1:
            store = dist.PrefixStore(group_prefix(members or range(size), present), store)
        return create(size, rank, members, backend, store, *args, **kwargs)

    module._new_process_group_helper = create_named
