"""HybridEP's buffer as provided by ``deep_ep``: the exchange, and ordering rows by expert."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import torch

from presim.capture.adapters.deep_ep_exchange import MISSING, Routing, exchange
from presim.capture.adapters.device_memory import DeviceMemory


class HybridEPBuffer:
    """HybridEP: the exchange, and ordering rows by expert."""

    def __init__(
        self,
        group: Any,
        hidden_dim: int,
        max_num_of_tokens_per_rank: int,
        num_local_experts: int,
        use_fp8: bool = False,
        num_sms_dispatch_api: int = 16,
        num_sms_combine_api: int = 16,
        **_: Any,
    ) -> None:
        self.group = group
        self.num_local_experts = num_local_experts
        sizes = {"hidden_dim": hidden_dim, "max_num_of_tokens_per_rank": max_num_of_tokens_per_rank}
        config = types.SimpleNamespace(**sizes, num_of_experts_per_rank=num_local_experts)
        self.configurer = types.SimpleNamespace(buffer_config=config)  # torchtitan reads the buffer's size
        self.sms = {"dispatch": num_sms_dispatch_api, "combine": num_sms_combine_api}
        rows = max_num_of_tokens_per_rank * group.size()  # all tokens may choose this rank
        self._memory = DeviceMemory(rows * hidden_dim * (1 if use_fp8 else 2), "DeepEP's buffer")

    def dispatch_with_permute(
        self,
        *,
        hidden: torch.Tensor,
        routing_map: torch.Tensor | None = None,
        probs: torch.Tensor | None = None,
        scaling_factor: torch.Tensor | None = None,
        handle: Any = None,
        pad_multiple: int | None = None,
        num_permuted_tokens: int | None = None,
        **_: Any,
    ) -> tuple[Any, ...]:
        """Send every token to the ranks of its experts, and order it by expert there."""
        if handle is None:
            if routing_map is None:
                raise NotImplementedError(MISSING.format("dispatch without routing_map"))
            loads = tuple(routing_map.sum(0).tolist())  # the host waits for the device, as in the library
            handle = Routing("hybridep", hidden.shape[0], loads, self.group.size(), self.group.rank(), 0)
        routing = dataclasses.replace(handle, sms=self.sms["dispatch"])
        factors = 0 if scaling_factor is None else scaling_factor.shape[-1]
        exchange.start("dispatch", self.group, routing, hidden, factors).wait()
        counts = handle.rows(pad_multiple)
        rows = sum(counts) if num_permuted_tokens is None else int(num_permuted_tokens)
        out = _gather_rows(hidden, rows)
        weights = None if probs is None else probs.new_empty(rows)
        scales = None if scaling_factor is None else scaling_factor.new_empty((rows, *scaling_factor.shape[1:]))
        return out, weights, scales, torch.tensor(counts), handle

    def combine_with_unpermute(
        self, *, hidden: torch.Tensor, probs: torch.Tensor | None = None, handle: Any = None, **_: Any
    ) -> tuple[Any, ...]:
        """Sum a token's results on each rank, send them back, and sum them there."""
        _gather_rows(hidden, handle.received)
        routing = dataclasses.replace(handle, sms=self.sms["combine"])
        exchange.start("combine", self.group, routing, hidden).wait()
        out = hidden.new_empty((handle.tokens, *hidden.shape[1:]))
        return out, None if probs is None else probs.new_empty((handle.tokens, handle.experts))

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(MISSING.format(f"HybridEPBuffer.{name}"))


def indices_to_map(
    topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, num_of_tokens: int, num_of_experts: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The chosen experts of each token and their weights, each [tokens, experts]."""
    empty = torch.zeros(num_of_tokens, num_of_experts, dtype=torch.bool, device=topk_idx.device)
    routing_map = empty.scatter(1, topk_idx.long(), True)
    if topk_weights is None:
        return routing_map, None
    return routing_map, torch.zeros_like(empty, dtype=torch.float32).scatter(1, topk_idx.long(), topk_weights)


def _gather_rows(rows: torch.Tensor, count: int) -> torch.Tensor:
    """The kernel that orders rows: each one is read and written once."""
    key = (count, rows.device)
    if key not in _orders:
        _orders[key] = torch.zeros(count, dtype=torch.int32, device=rows.device)
    return torch.index_select(rows, 0, _orders[key])


_orders: dict[tuple[int, torch.device], torch.Tensor] = {}
