"""What a process needs of torch.distributed to be rank r of a world in which nobody else runs.

* Gloo connects every pair of ranks while a group is made, which absent ranks cannot answer. Groups on the CPU
  become PyTorch's own fake process group: every rank is taken to hold what this one holds.
* Ranks meet at the launcher's store, wherever the script would meet: at an address of its own (``tcp://``, or what it
  made of Slurm's variables), at a file, or where rank 0 would have hosted a store.
* A TCPStore client sleeps up to one millisecond per rank of the world before it connects, to spare the server
  (16 s in a world of 16,384); a client that is not told the world's size does not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist


def install(port: int) -> None:
    """Before the script runs; nothing happens where torch was built without distributed.

    ``port``: of the launcher's store on this machine.
    """
    if not dist.is_available():
        return
    _replace_gloo()
    _meet_at(port)


def _replace_gloo() -> None:
    from torch._C._distributed_c10d import FakeProcessGroup

    module: Any = sys.modules["torch.distributed.distributed_c10d"]

    def fake_gloo(store: Any, rank: int, size: int, *args: Any, **kwargs: Any) -> Any:
        create = getattr(FakeProcessGroup, "_create_internal", None) or FakeProcessGroup
        return create(rank, size)

    if hasattr(module, "_create_gloo_process_group"):

        def create_gloo(opts: Any, backend_options: Any) -> Any:
            return fake_gloo(opts.store, opts.group_rank, opts.group_size)

        module._create_gloo_process_group = create_gloo
        plugin = module.Backend._plugins.get("GLOO")
        if plugin is not None:
            module.Backend._plugins["GLOO"] = plugin._replace(creator_fn=create_gloo)


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
