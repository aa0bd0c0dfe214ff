"""Shared by the replacements of DeepEP and HybridEP: how tokens are distributed, and one collective per exchange.

Tokens go once to every rank that has an expert they chose. How many choose each expert is read from the routing, which
presim computes or answers by a policy; the other ranks' tokens are taken to choose as this one's do. How many ranks a
token goes to is counted where the program itself says which experts it chose (a gate that deals tokens out in turn has
them next to each other), else the expectation for choices spread evenly (`presim.trace.routing`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from presim.capture.device_values.policies import Origin
from presim.capture.device_values.triton import host_view
from presim.capture.script.real_clock import now_ns
from presim.trace.routing import distinct

if TYPE_CHECKING:
    from presim.capture.script.hook import Hook

MISSING = "presim's stand-in for DeepEP has no {}: the exchanges of training, of prompts and of decoding are there"


class Exchange:
    """Makes an exchange appear in the log: one collective of the group, described by what it carries."""

    hook: Hook | None = None
    was_used = False

    def start(self, kind: str, group: Any, routing: Routing | Decoding, token: torch.Tensor, factors: int = 0) -> Any:
        """Begin on the group's own stream after what the current stream has to do; returns what can be waited for.

        ``kind``: dispatch or combine; ``token``: rows of what travels; ``factors``: of a token in FP8, four bytes each.
        """
        self.was_used = True
        size = token.shape[-1] * token.element_size() + 4 * factors
        numbers = (routing.tokens, size, routing.chosen, routing.experts, routing.sms, routing.window)
        text = ";".join((kind, routing.library, *map(str, numbers))) + ";"
        text += ",".join(f"{places:.4g}" for places in routing.spread)
        if self.hook is None:
            raise RuntimeError("deep_ep's stand-in was imported outside of presim")
        self.hook.exchange = f"{text};{str(token.dtype).removeprefix('torch.')}"
        try:
            return dist.all_reduce(_signal(token.device), group=group, async_op=True)
        finally:
            self.hook.exchange = ""

    def spread(self, chosen: torch.Tensor, experts: int, ranks: int) -> tuple[float, ...]:
        """To how many places a token goes on average, where a place is 1, 2, 4, ... ranks; empty: nobody knows.

        ``chosen``: experts of each token, shape (tokens, experts of each), -1 for none.
        """
        if self.hook is None or not chosen.is_contiguous():
            return ()
        start = now_ns()
        if self.hook.origin_of(chosen.data_ptr(), chosen.nbytes) != Origin.COMPUTED:
            return ()
        found = _spread(host_view(chosen).numpy(), experts // ranks, ranks)
        self.hook.add_own_time(now_ns() - start)
        return found


def _spread(chosen: Any, local: int, ranks: int) -> tuple[float, ...]:
    """For choices as an array; ``local``: experts of a rank."""
    counts, width = [], local
    while width <= local * ranks:
        places = np.sort(np.where(chosen < 0, -1, chosen // width), axis=1)
        is_new = np.diff(places, axis=1, prepend=-1) > 0
        counts.append(float(is_new.sum() / max(len(chosen), 1)))
        width *= 2
    return tuple(counts)


exchange = Exchange()
_signals: dict[torch.device, torch.Tensor] = {}


def _signal(device: torch.device) -> torch.Tensor:
    """What the stand-in's collectives carry in truth: one number."""
    if device not in _signals:
        _signals[device] = torch.zeros(1, dtype=torch.int32, device=device)
    return _signals[device]


@dataclasses.dataclass(frozen=True)
class Routing:
    """How the tokens of one rank are dealt out; what a handle holds."""

    library: str
    tokens: int
    loads: tuple[int, ...]  # by expert, of all ranks: how many of this rank's tokens chose it
    ranks: int
    rank: int
    sms: int
    spread: tuple[float, ...] = ()  # as `Exchange.spread`
    window: int = 0  # as `Routed.window`

    @property
    def experts(self) -> int:
        """Of all ranks."""
        return len(self.loads)

    @property
    def chosen(self) -> int:
        """Experts of each token."""
        return max(1, round(sum(self.loads) / max(self.tokens, 1)))

    @property
    def received(self) -> int:
        """Tokens that arrive at a rank: as many copies as leave one."""
        copies = self.spread[0] if self.spread else distinct(self.ranks, self.experts, self.chosen)
        return max(1, round(self.tokens * copies))

    def rows(self, multiple: int | None) -> list[int]:
        """Rows for each expert of this rank, filled up to a multiple."""
        local, step = self.experts // self.ranks, multiple or 1
        mine = self.loads[self.rank * local : (self.rank + 1) * local]
        return [-(-count * self.ranks // step) * step for count in mine]


@dataclasses.dataclass(frozen=True)
class Decoding:
    """The same in low latency, as far as the host knows, which waits for no counts."""

    tokens: int
    chosen: int
    experts: int
    library: str = "deepep-low-latency"
    sms: int = 0  # none while data moves
    spread: tuple[float, ...] = ()
    window: int = 0
