"""Shared by the replacements of DeepEP and HybridEP: the distribution of tokens, and one collective per exchange.

Each token goes once to every rank that has one of its experts. The number of tokens per expert is read from the
routing, which presim computes or takes from a policy; tokens of other ranks are assumed to choose the same experts as
this rank's. The number of ranks per token is counted if the program computes the choices (a gate that assigns tokens in
turn puts them on neighbouring experts); otherwise it is the expectation for evenly distributed choices
(`presim.trace.even_routing`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from presim.capture.device_values.policies import DeviceValueOrigin
from presim.capture.device_values.triton import host_view
from presim.capture.script.real_clock import now_ns
from presim.trace.even_routing import distinct

if TYPE_CHECKING:
    from presim.capture.script.hook import Hook

MISSING = "presim's replacement of DeepEP has no {}: it has the exchanges of training, prefill and decoding"


class Exchange:
    """Records an exchange in the log as one collective of the group, described by its payload."""

    hook: Hook | None = None
    was_used = False

    def start(self, kind: str, group: Any, routing: Routing | Decoding, token: torch.Tensor, factors: int = 0) -> Any:
        """Start on the group's own stream after the current stream's work; returns a work object to wait for.

        ``kind``: dispatch or combine; ``token``: rows of the payload; ``factors``: FP8 scale factors per token, four
        bytes each.
        """
        self.was_used = True
        size = token.shape[-1] * token.element_size() + 4 * factors
        numbers = (routing.tokens, size, routing.experts_per_token, routing.experts, routing.sms, routing.window)
        text = ";".join((kind, routing.library, *map(str, numbers))) + ";"
        text += ",".join(f"{places:.4g}" for places in routing.spread)
        if self.hook is None:
            raise RuntimeError("presim's replacement of deep_ep was imported outside of presim")
        self.hook.exchange = f"{text};{str(token.dtype).removeprefix('torch.')}"
        try:
            return dist.all_reduce(_signal(token.device), group=group, async_op=True)
        finally:
            self.hook.exchange = ""

    def spread(self, expert_indices: torch.Tensor, experts: int, ranks: int) -> tuple[float, ...]:
        """Average number of places per token, for places of 1, 2, 4, ... ranks; empty if unknown.

        ``expert_indices``: experts of each token, shape (tokens, experts per token), -1 for none.
        """
        if self.hook is None or not expert_indices.is_contiguous():
            return ()
        start = now_ns()
        if self.hook.origin_of(expert_indices.data_ptr(), expert_indices.nbytes) != DeviceValueOrigin.COMPUTED:
            return ()
        ranks_per_token = _spread(host_view(expert_indices).numpy(), experts // ranks, ranks)
        self.hook.add_own_time(now_ns() - start)
        return ranks_per_token


def _spread(expert_indices: Any, experts_per_rank: int, ranks: int) -> tuple[float, ...]:
    """`Exchange.spread` for expert indices as an array."""
    counts, width = [], experts_per_rank
    while width <= experts_per_rank * ranks:
        places = np.sort(np.where(expert_indices < 0, -1, expert_indices // width), axis=1)
        is_new = np.diff(places, axis=1, prepend=-1) > 0
        counts.append(float(is_new.sum() / max(len(expert_indices), 1)))
        width *= 2
    return tuple(counts)


exchange = Exchange()
_signals: dict[torch.device, torch.Tensor] = {}


def _signal(device: torch.device) -> torch.Tensor:
    """The one number that the replacement's collectives really carry."""
    if device not in _signals:
        _signals[device] = torch.zeros(1, dtype=torch.int32, device=device)
    return _signals[device]


@dataclasses.dataclass(frozen=True)
class Routing:
    """The distribution of one rank's tokens; the content of a handle."""

    library: str
    tokens: int
    loads: tuple[int, ...]  # by expert of all ranks: how many of this rank's tokens chose it
    ranks: int
    rank: int
    sms: int
    spread: tuple[float, ...] = ()  # see `Exchange.spread`
    window: int = 0  # see `Routed.window`

    @property
    def experts(self) -> int:
        """Experts of all ranks."""
        return len(self.loads)

    @property
    def experts_per_token(self) -> int:
        """Experts per token."""
        return max(1, round(sum(self.loads) / max(self.tokens, 1)))

    @property
    def received(self) -> int:
        """Tokens received by a rank: the number of copies that it sends."""
        copies = self.spread[0] if self.spread else distinct(self.ranks, self.experts, self.experts_per_token)
        return max(1, round(self.tokens * copies))

    def rows(self, multiple: int | None) -> list[int]:
        """Rows for each expert of this rank, rounded up to a multiple."""
        local, step = self.experts // self.ranks, multiple or 1
        mine = self.loads[self.rank * local : (self.rank + 1) * local]
        return [-(-count * self.ranks // step) * step for count in mine]


@dataclasses.dataclass(frozen=True)
class Decoding:
    """The low-latency exchange for decoding, in which the host waits for no counts."""

    tokens: int
    experts_per_token: int
    experts: int
    library: str = "deepep-low-latency"
    sms: int = 0  # none while data is in transit
    spread: tuple[float, ...] = ()
    window: int = 0
