"""DeepEP's exchanges for decoding ("low-latency kernels"), which its buffer provides beside those for training.

The host waits for nothing: every expert has room for all tokens of all ranks, and the counts stay on the device. A
token is sent to each of its experts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from presim.capture.adapters.deep_ep_events import EventOverlap
from presim.capture.adapters.deep_ep_exchange import MISSING, Decoding, exchange

_SCALED = 128  # FP8 values per scale factor
_MESSAGE_HEAD = 16  # bytes in front of a token
_BUFFERS = 2  # used in turn


class LowLatency:
    """The decoding part of DeepEP's buffer."""

    group: Any

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int
    ) -> int:
        """Bytes accessed over the network: every expert's tokens, sent and received, double-buffered."""
        factors = hidden // _SCALED * 4
        message = max(_MESSAGE_HEAD + max(2 * hidden, hidden + factors), 2 * hidden + factors)
        return 2 * _BUFFERS * num_experts * num_max_dispatch_tokens_per_rank * message

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Do nothing: the buffer's content is not computed."""

    def low_latency_dispatch(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: torch.Tensor | None = None,
        dispatch_wait_recv_cost_stats: torch.Tensor | None = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
    ) -> tuple[Any, ...]:
        """Send every token to each of its experts, in FP8 with scale factors by default.

        Returns each expert's buffer, shape (local experts, ranks * maximum tokens, width), the token counts, a handle,
        an event, and a hook that receives.
        """
        if use_ue8m0:
            raise NotImplementedError(MISSING.format("low_latency_dispatch with use_ue8m0"))
        ranks = self.group.size()
        local, room = num_experts // ranks, ranks * num_max_dispatch_tokens_per_rank
        dtype = torch.float8_e4m3fn if use_fp8 else x.dtype
        out: Any = x.new_empty((local, room, x.shape[1]), dtype=dtype)
        handle = Decoding(x.shape[0], topk_idx.shape[1], num_experts)
        scaled = x.shape[1] // _SCALED if use_fp8 else 0
        work = exchange.start("dispatch", self.group, handle, out, scaled)
        if use_fp8:
            factors = x.new_empty((local, scaled, room), dtype=torch.float32)
            out = (out, factors.transpose(1, 2))
        share = handle.tokens * handle.experts_per_token * ranks // num_experts
        counts = torch.full((local,), share, dtype=torch.int32, device=x.device)  # as for evenly chosen experts
        return out, counts, handle, *_event_and_hook(work, async_finish, return_recv_hook)

    def low_latency_combine(
        self,
        x: torch.Tensor,
        topk_idx: torch.Tensor,
        topk_weights: torch.Tensor,
        handle: Decoding,
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: torch.Tensor | None = None,
        combine_wait_recv_cost_stats: torch.Tensor | None = None,
    ) -> tuple[Any, ...]:
        """Send every expert's results back and sum them by weight: shape (tokens, width)."""
        if use_logfmt or zero_copy:
            raise NotImplementedError(MISSING.format("low_latency_combine with use_logfmt or zero_copy"))
        work = exchange.start("combine", self.group, handle, x)
        result = x.new_empty((handle.tokens, x.shape[-1])) if out is None else out
        return result, *_event_and_hook(work, async_finish, return_recv_hook)


def _event_and_hook(work: Any, async_finish: bool, hooked: bool) -> tuple[EventOverlap, Callable[[], None]]:
    """An event and a hook; without either, the current stream waits now."""
    if not (async_finish or hooked):
        work.wait()
    return EventOverlap(work), work.wait if hooked else _no_receive


def _no_receive() -> None:
    """The data has already arrived."""
