"""Patches torch.distributed so that a process can be rank r of a world of which only some ranks run.

* Gloo connects every pair of ranks while a group is made, which absent ranks cannot answer. Groups on the CPU go
  through the launcher's store instead (`presim.capture.distributed.cpu_group`).
* Ranks meet at the launcher's store, wherever the script would meet: at an address of its own (``tcp://``, or what it
  made of Slurm's variables), at a file, or where rank 0 would have hosted a store.
* A TCPStore client sleeps up to one millisecond per rank of the world before it connects, to spare the server
  (16 s in a world of 16,384); a client that is not told the world's size does not.
* The store of each group says which of its members run, so that the launcher answers for the others only.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

from presim.capture.rendezvous.present_ranks import group_prefix
from presim.trace.representatives import Representatives


def install(port: int, rank: int, representatives: Representatives) -> None:
    """Before the script runs; nothing happens where torch was built without distributed.

    ``port``: of the launcher's store on this machine.
    """
    if not dist.is_available():
        return
    _replace_gloo(rank, representatives)
    _meet_at(port)
    _name_members(representatives.captured)
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
    """A group of ours where PyTorch lets one be written in Python (2.14), else PyTorch's own fake one."""
    from torch._C._distributed_c10d import FakeProcessGroup

    try:
        from presim.capture.distributed.cpu_group import CpuGroup
    except ImportError:
        fake = getattr(FakeProcessGroup, "_create_internal", None) or FakeProcessGroup
        return lambda store, group_rank, size, members: fake(group_rank, size)

    def create(store: Any, group_rank: int, size: int, members: list[int]) -> Any:
        return CpuGroup(store, group_rank, members or list(range(size)), representatives)

    return create


def _meet_at(port: int) -> None:
    module: Any = sys.modules["torch.distributed.rendezvous"]

    def create_store(hostname: str, asked: int, rank: int, world_size: int, timeout: Any, *args: Any) -> Any:
        return dist.TCPStore("127.0.0.1", port, None, is_master=False, timeout=timeout)

    def meet_at_file(url: str, timeout: Any = module.default_pg_timeout, **kwargs: Any) -> Iterator[Any]:
        query = module._query_to_dict(module.urlparse(url).query)
        yield create_store("", 0, 0, 0, timeout), int(query["rank"]), int(query["world_size"])
        raise RuntimeError("Unable to perform re-rendezvous using file:// method")  # as PyTorch's own does

    module._create_c10d_store = create_store
    module._rendezvous_handlers["file"] = meet_at_file


def _name_members(present: tuple[int, ...]) -> None:
    module: Any = sys.modules["torch.distributed.distributed_c10d"]
    create = module._new_process_group_helper

    @functools.wraps(create)
    def create_named(size: int, rank: Any, members: Any, backend: Any, store: Any, *args: Any, **kwargs: Any) -> Any:
        if len(present) > 1:
            store = dist.PrefixStore(group_prefix(members or range(size), present), store)
        return create(size, rank, members, backend, store, *args, **kwargs)

    module._new_process_group_helper = create_named
