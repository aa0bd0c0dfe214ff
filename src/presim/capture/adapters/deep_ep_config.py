"""Tuning of DeepEP's kernels for training and prefill: SMs, and tokens sent before a peer is notified."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from presim.capture.adapters.deep_ep_exchange import Routing

_HOST = 8  # ranks per NVLink domain in the library
_TOKEN_BYTES = 8 + 128 * (8 + 4 + 4)  # per buffered token: origin, 128 choices, their weights, 128 factors
_RDMA_TOKEN_BYTES = _TOKEN_BYTES + 16


@dataclasses.dataclass(frozen=True)
class Config:
    """DeepEP's ``Config``: tokens written before a peer is notified ("send"), and tokens in a buffer ("recv").

    Buffer sizes follow ``csrc/config.hpp`` (DeepEP 1.2), without some hundred bytes of counters.
    """

    num_sms: int = 20
    num_max_nvl_chunked_send_tokens: int = 6
    num_max_nvl_chunked_recv_tokens: int = 256
    num_max_rdma_chunked_send_tokens: int = 6
    num_max_rdma_chunked_recv_tokens: int = 256

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """Bytes of memory shared over NVLink: a token buffer for every channel and rank of a host."""
        tokens = self.num_sms // 2 * min(num_ranks, _HOST) * self.num_max_nvl_chunked_recv_tokens
        return tokens * (hidden_bytes + _TOKEN_BYTES)

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """Bytes of memory accessed over the network: send and receive buffers for every channel and host."""
        if num_ranks <= _HOST:
            return 0
        step = self.num_max_rdma_chunked_send_tokens
        tokens_per_buffer = -(-self.num_max_rdma_chunked_recv_tokens // step) * step
        return 2 * (self.num_sms // 2) * (num_ranks // _HOST) * tokens_per_buffer * (hidden_bytes + _RDMA_TOKEN_BYTES)

    def applied_to(self, routing: Routing) -> Routing:
        """A routing with these SMs and windows."""
        return dataclasses.replace(routing, sms=self.num_sms, window=self.num_max_nvl_chunked_send_tokens)


# Ranks -> tokens before a peer is notified and tokens in a buffer, over NVLink and over the network
# (get_dispatch_config and get_combine_config of deepseek-ai/DeepEP 1.2, deep_ep/buffer.py).
_RECOMMENDED = {
    "dispatch": {
        2: (24, 256, 6, 128), 4: (6, 256, 6, 128), 8: (6, 256, 6, 128), 16: (36, 288, 20, 128), 24: (32, 288, 8, 128),
        32: (32, 288, 8, 128), 48: (32, 288, 8, 128), 64: (32, 288, 8, 128), 96: (20, 480, 12, 128),
        128: (20, 560, 12, 128), 144: (32, 720, 12, 128), 160: (28, 720, 12, 128),
    },
    "combine": {
        2: (10, 256, 6, 128), 4: (9, 256, 6, 128), 8: (4, 256, 6, 128), 16: (4, 288, 12, 128), 24: (1, 288, 8, 128),
        32: (1, 288, 8, 128), 48: (1, 288, 8, 128), 64: (1, 288, 8, 128), 96: (1, 480, 8, 128),
        128: (1, 560, 8, 128), 144: (2, 720, 8, 128), 160: (2, 720, 8, 128),
    },
}  # fmt: skip


def default_config(kind: str, ranks: int, sms: int) -> Config:
    """The library's default.

    Raises:
        AssertionError: as in the library, there is none for this number of ranks.
    """
    if ranks not in _RECOMMENDED[kind]:
        raise AssertionError(f"Unsupported number of EP ranks: {ranks}")
    return Config(sms, *_RECOMMENDED[kind][ranks])
