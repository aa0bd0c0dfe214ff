"""Exchanges of tensor parallelism beside the products, in the place of Transformer Engine's userbuffers.

Userbuffers send pieces around a ring while products of the pieces run, so that one piece of an exchange is waited for
and the others are not. Here one piece of it is exchanged as before and the rest without waiting, until the exchange
after the next one. The time is alike; the numbers are not: what follows reads buffers that are not whole yet.
"""

from __future__ import annotations

import collections
import contextlib
from typing import Any

import torch.distributed as dist
from megatron.core.tensor_parallel import layers, mappings

_LEAST = 1 << 20  # elements below which an exchange stays whole


def install(group: dist.ProcessGroup) -> None:
    """Let the exchanges of this group run so from here on."""
    pending: collections.deque[Any] = collections.deque()
    stream_group = dist.new_group(dist.get_process_group_ranks(group), use_local_synchronization=True)  # its own stream
    for name, gathers in (("all_gather_into_tensor", True), ("reduce_scatter_tensor", False)):
        exchange = getattr(dist, name)
        setattr(dist, name, _split(exchange, group, stream_group, gathers, pending))
        for module in (layers, mappings):  # they have it by a name of their own
            for alias in [alias for alias, value in vars(module).items() if value is exchange]:
                setattr(module, alias, getattr(dist, name))
    dist._coalescing_manager = _apart(dist._coalescing_manager, group)


def _apart(manager, group: dist.ProcessGroup):
    """What is waited for is not put together: scaled numbers travel with their scales in two exchanges."""

    @contextlib.contextmanager
    def apart(group_=None, device=None, async_ops=False):
        if group_ is group and not async_ops:
            yield None
        else:
            with manager(group_, device, async_ops) as handle:
                yield handle

    return lambda group=None, device=None, async_ops=False: apart(group, device, async_ops)


def _split(
    exchange, group: dist.ProcessGroup, stream_group: dist.ProcessGroup, gathers: bool, pending: collections.deque
):
    """The collective, in two parts where its members wait for it."""
    pieces = dist.get_world_size(group)

    def split(output, input, *args, **options):
        share = input if gathers else output
        usual = options.get("async_op") or args or options.get("group") is not group
        if usual or share.numel() < _LEAST or not (output.is_contiguous() and input.is_contiguous()):
            return exchange(output, input, *args, **options)
        while len(pending) > 1:
            pending.popleft().wait()
        first = share.numel() // pieces
        flat_output, flat_input = output.view(-1), input.view(-1)
        cut_output, cut_input = (first * pieces, first) if gathers else (first, first * pieces)
        exchange(flat_output[:cut_output], flat_input[:cut_input], **options)
        asynchronous = {**options, "async_op": True, "group": stream_group}
        pending.append(exchange(flat_output[cut_output:], flat_input[cut_input:], **asynchronous))
        return None

    return split
