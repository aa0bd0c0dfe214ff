"""DeepEP's buffer for training and prefill, with the library's names and results."""

from __future__ import annotations

from typing import Any

import torch

from presim.capture.adapters.deep_ep_config import Config, default_config
from presim.capture.adapters.deep_ep_events import EventHandle, EventOverlap
from presim.capture.adapters.deep_ep_exchange import MISSING, Routing, exchange
from presim.capture.adapters.deep_ep_low_latency import LowLatency
from presim.capture.adapters.device_memory import DeviceMemory


class Buffer(LowLatency):
    """DeepEP's exchanges for training and prefill ("normal kernels")."""

    num_sms = 20

    def __init__(
        self,
        group: Any,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        *_: Any,
        **__: Any,
    ) -> None:
        self.group, self.low_latency_mode = group, low_latency_mode
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self._memory = DeviceMemory(num_nvl_bytes + num_rdma_bytes, "DeepEP's buffer")

    @staticmethod
    def is_sm90_compiled() -> bool:
        """Whether it is built for Hopper and later, with NVSHMEM."""
        return True

    def destroy(self) -> None:
        """Do nothing: the memory stays allocated until the process ends."""

    @classmethod
    def set_num_sms(cls, new_num_sms: int) -> None:
        """Set the number of SMs for later exchanges."""
        cls.num_sms = new_num_sms

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """The library's default for this number of ranks, with the configured SMs."""
        return default_config("dispatch", num_ranks, Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """Same as `get_dispatch_config`."""
        return default_config("combine", num_ranks, Buffer.num_sms)

    @staticmethod
    def capture() -> EventOverlap:
        """An event after the current stream's work so far."""
        return EventOverlap(EventHandle())

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int, *_: Any, **__: Any) -> tuple[Any, ...]:
        """Token counts by rank, host and expert, and each token's ranks; only the counts by expert are computed."""
        ranks, device = self.group.size(), topk_idx.device
        by_expert = torch.bincount(topk_idx.flatten() + 1, minlength=num_experts + 1)[1:]  # -1: no expert
        by_rank = torch.empty(ranks, dtype=torch.int32, device=device)
        by_host = torch.empty(ranks // 8, dtype=torch.int32, device=device) if ranks > 8 else None
        in_rank = torch.empty((topk_idx.shape[0], ranks), dtype=torch.bool, device=device)
        return by_rank, by_host, by_expert, in_rank, EventOverlap(EventHandle())

    def dispatch(
        self,
        x: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        handle: Any = None,
        num_tokens_per_rank: torch.Tensor | None = None,
        num_tokens_per_rdma_rank: torch.Tensor | None = None,
        is_token_in_rank: torch.Tensor | None = None,
        num_tokens_per_expert: torch.Tensor | None = None,
        topk_idx: torch.Tensor | None = None,
        topk_weights: torch.Tensor | None = None,
        expert_alignment: int = 1,
        *_: Any,
        config: Config | None = None,
        async_finish: bool = False,
        **__: Any,
    ) -> tuple[Any, ...]:
        """Send every token to the ranks of its experts; without a handle, the host waits for the token counts."""
        data, scales = x if isinstance(x, tuple) else (x, None)
        is_new = handle is None
        if is_new:
            if num_tokens_per_expert is None or topk_idx is None:
                raise NotImplementedError(MISSING.format("dispatch without topk_idx and num_tokens_per_expert"))
            loads = tuple(num_tokens_per_expert.tolist())  # the host waits for the device, as in the library
            ranks, spread = self.group.size(), exchange.spread(topk_idx, len(loads), self.group.size())
            handle = Routing("deepep", data.shape[0], loads, ranks, self.group.rank(), self.num_sms, spread)
        config = config or self.get_dispatch_config(handle.ranks)
        factors = 0 if scales is None else scales.shape[-1]
        work = exchange.start("dispatch", self.group, config.applied_to(handle), data, factors)
        rows = handle.received
        out: Any = data.new_empty((rows, *data.shape[1:]))
        if scales is not None:
            out = (out, scales.new_empty((rows, *scales.shape[1:])))
        done = _event_after(work, async_finish)
        if not is_new or topk_idx is None:
            return out, None, None, None, None, done
        counts = handle.rows(expert_alignment)
        indices = _local_expert_indices(tuple(handle.rows(None)), rows, topk_idx)
        weights = None if topk_weights is None else topk_weights.new_empty(indices.shape)
        return out, indices, weights, counts, handle, done

    def combine(
        self,
        x: torch.Tensor,
        handle: Any,
        topk_weights: torch.Tensor | None = None,
        *_: Any,
        config: Config | None = None,
        async_finish: bool = False,
        **__: Any,
    ) -> tuple[Any, ...]:
        """Send every token's results back and sum them."""
        config = config or self.get_combine_config(handle.ranks)
        work = exchange.start("combine", self.group, config.applied_to(handle), x)
        out = x.new_empty((handle.tokens, *x.shape[1:]))
        weights = None if topk_weights is None else topk_weights.new_empty((handle.tokens, handle.experts_per_token))
        return out, weights, _event_after(work, async_finish)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(MISSING.format(name)) if name.startswith("low_latency") else AttributeError(name)


def _event_after(work: Any, async_finish: bool) -> EventOverlap:
    if not async_finish:
        work.wait()
    return EventOverlap(work)


def _local_expert_indices(loads: tuple[int, ...], rows: int, like: torch.Tensor) -> torch.Tensor:
    """The local experts of each received row, with -1 in unused places."""
    key = (loads, rows)
    if key not in _expert_indices_by_loads:
        width = max(like.shape[1], -(-sum(loads) // rows))
        flat = torch.full((width * rows,), -1, dtype=like.dtype)
        flat[: sum(loads)] = torch.repeat_interleave(torch.arange(len(loads)), torch.tensor(loads))
        _expert_indices_by_loads[key] = flat.view(width, rows).t().contiguous().to(like.device)
    return _expert_indices_by_loads[key]


_expert_indices_by_loads: dict[tuple[tuple[int, ...], int], torch.Tensor] = {}
