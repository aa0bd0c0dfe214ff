"""What ``deep_ep`` offers to a program, with the names and results of the library: DeepEP's buffer, and HybridEP's.

Tokens go once to every rank that has an expert they chose. How many choose each expert is read from the routing, which
presim computes or answers by a policy; the other ranks' tokens are taken to choose as this one's do. How many ranks a
token goes to is the expectation for choices spread evenly (`presim.trace.routing`).
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from presim.trace.routing import distinct

if TYPE_CHECKING:
    from presim.capture.script.hook import Hook

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "HybridEPBuffer"]

_MISSING = "presim's stand-in for DeepEP has no {}: the exchanges of training and of prompts are there"


class Exchange:
    """Makes an exchange appear in the log: one collective of the group, described by what it carries."""

    hook: Hook | None = None
    was_used = False

    def start(self, kind: str, group: Any, routing: Routing, token: torch.Tensor) -> Any:
        """Begin on the group's own stream after what the current stream has to do; returns what can be waited for.

        ``kind``: dispatch or combine; ``token``: rows of what travels.
        """
        self.was_used = True
        size = token.shape[-1] * token.element_size()
        text = f"{kind};{routing.library};{routing.tokens};{size};{routing.chosen};{routing.experts};{routing.sms}"
        if self.hook is None:
            raise RuntimeError("deep_ep's stand-in was imported outside of presim")
        self.hook.exchange = f"{text};{str(token.dtype).removeprefix('torch.')}"
        try:
            return dist.all_reduce(_signal(token.device), group=group, async_op=True)
        finally:
            self.hook.exchange = ""


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
        return max(1, round(self.tokens * distinct(self.ranks, self.experts, self.chosen)))

    def rows(self, multiple: int | None) -> list[int]:
        """Rows for each expert of this rank, filled up to a multiple."""
        local, step = self.experts // self.ranks, multiple or 1
        mine = self.loads[self.rank * local : (self.rank + 1) * local]
        return [-(-count * self.ranks // step) * step for count in mine]


class EventHandle:
    """What the current stream has to do by now."""

    def __init__(self) -> None:
        self.event = torch.cuda.Event()
        self.event.record()

    def current_stream_wait(self) -> None:
        """Later work of the current stream comes after it."""
        torch.cuda.current_stream().wait_event(self.event)


class EventOverlap:
    """An end that a stream can wait for: of an exchange, or of earlier work."""

    def __init__(self, event: Any = None, extra_tensors: Any = None) -> None:
        self.event = event
        self.extra_tensors = extra_tensors

    def current_stream_wait(self) -> None:
        """Later work of the current stream comes after it."""
        if self.event is not None:
            self.event.wait() if hasattr(self.event, "wait") else self.event.current_stream_wait()

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *error: object) -> None:
        self.current_stream_wait()


@dataclasses.dataclass(frozen=True)
class Config:
    """Tuning of DeepEP's kernels; only the number of SMs counts here."""

    num_sms: int = 20
    num_max_nvl_chunked_send_tokens: int = 6
    num_max_nvl_chunked_recv_tokens: int = 256
    num_max_rdma_chunked_send_tokens: int = 6
    num_max_rdma_chunked_recv_tokens: int = 256

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """Bytes of memory shared over NVLink: a window of tokens for every channel and rank of a host."""
        return self.num_sms // 2 * min(num_ranks, 8) * self.num_max_nvl_chunked_recv_tokens * hidden_bytes

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """Bytes of memory that the network reads and writes: sent and received, for every channel and host."""
        hosts = num_ranks // 8
        return 0 if hosts < 2 else self.num_sms * hosts * self.num_max_rdma_chunked_recv_tokens * hidden_bytes


class Buffer:
    """DeepEP's exchanges for training and for prompts ("normal kernels")."""

    num_sms = 20

    def __init__(self, group: Any, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0, *args: Any, **more: Any) -> None:
        if more.get("low_latency_mode") or args[:1] == (True,):
            raise NotImplementedError(_MISSING.format("low-latency mode"))
        self.group = group
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self._memory = _DeviceMemory(num_nvl_bytes + num_rdma_bytes)

    @classmethod
    def set_num_sms(cls, new_num_sms: int) -> None:
        """For all exchanges from here on."""
        cls.num_sms = new_num_sms

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """As many SMs as were set."""
        return Config(Buffer.num_sms)

    get_combine_config = get_dispatch_config

    @staticmethod
    def capture() -> EventOverlap:
        """What the current stream has to do by now."""
        return EventOverlap(EventHandle())

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int, *_: Any, **__: Any) -> tuple[Any, ...]:
        """Counts by rank, host and expert, and which token goes to which rank; only those by expert are computed."""
        ranks, device = self.group.size(), topk_idx.device
        by_expert = torch.bincount(topk_idx.flatten() + 1, minlength=num_experts + 1)[1:]  # -1: chose none
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
        async_finish: bool = False,
        **__: Any,
    ) -> tuple[Any, ...]:
        """Send every token to the ranks of its experts; the host waits for their number where there is no handle."""
        data, scales = x if isinstance(x, tuple) else (x, None)
        is_new = handle is None
        if is_new:
            if num_tokens_per_expert is None or topk_idx is None:
                raise NotImplementedError(_MISSING.format("dispatch without topk_idx and num_tokens_per_expert"))
            loads = tuple(num_tokens_per_expert.tolist())  # the host waits for the device, as the library's does
            handle = Routing("deepep", data.shape[0], loads, self.group.size(), self.group.rank(), self.num_sms)
        work = exchange.start("dispatch", self.group, handle, data)
        rows = handle.received
        out: Any = data.new_empty((rows, *data.shape[1:]))
        if scales is not None:
            out = (out, scales.new_empty((rows, *scales.shape[1:])))
        done = _finished(work, async_finish)
        if not is_new or topk_idx is None:
            return out, None, None, None, None, done
        counts = handle.rows(expert_alignment)
        indices = _choices(tuple(handle.rows(None)), rows, topk_idx)
        weights = None if topk_weights is None else topk_weights.new_empty(indices.shape)
        return out, indices, weights, counts, handle, done

    def combine(
        self,
        x: torch.Tensor,
        handle: Any,
        topk_weights: torch.Tensor | None = None,
        *_: Any,
        async_finish: bool = False,
        **__: Any,
    ) -> tuple[Any, ...]:
        """Send every token's results back and add them up."""
        work = exchange.start("combine", self.group, handle, x)
        out = x.new_empty((handle.tokens, *x.shape[1:]))
        weights = None if topk_weights is None else topk_weights.new_empty((handle.tokens, handle.chosen))
        return out, weights, _finished(work, async_finish)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(_MISSING.format(name)) if name.startswith("low_latency") else AttributeError(name)


class HybridEPBuffer:
    """HybridEP: the exchange, and the order of rows by expert beside it."""

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
        self.sms = {"dispatch": num_sms_dispatch_api, "combine": num_sms_combine_api}
        rows = max_num_of_tokens_per_rank * group.size()  # all tokens may choose this rank
        self._memory = _DeviceMemory(rows * hidden_dim * (1 if use_fp8 else 2))

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
        """Send every token to the ranks of its experts, and there lay it out by expert."""
        if handle is None:
            if routing_map is None:
                raise NotImplementedError(_MISSING.format("dispatch without routing_map"))
            loads = tuple(routing_map.sum(0).tolist())  # the host waits for the device, as the library's does
            handle = Routing("hybridep", hidden.shape[0], loads, self.group.size(), self.group.rank(), 0)
        routing = dataclasses.replace(handle, sms=self.sms["dispatch"])
        exchange.start("dispatch", self.group, routing, hidden).wait()
        counts = handle.rows(pad_multiple)
        rows = sum(counts) if num_permuted_tokens is None else int(num_permuted_tokens)
        out = _gather_rows(hidden, rows)
        weights = None if probs is None else probs.new_empty(rows)
        scales = None if scaling_factor is None else scaling_factor.new_empty((rows, *scaling_factor.shape[1:]))
        return out, weights, scales, torch.tensor(counts), handle

    def combine_with_unpermute(
        self, *, hidden: torch.Tensor, probs: torch.Tensor | None = None, handle: Any = None, **_: Any
    ) -> tuple[Any, ...]:
        """Add up a token's results on each rank, send them back, and add them up there."""
        _gather_rows(hidden, handle.received)
        routing = dataclasses.replace(handle, sms=self.sms["combine"])
        exchange.start("combine", self.group, routing, hidden).wait()
        out = hidden.new_empty((handle.tokens, *hidden.shape[1:]))
        return out, None if probs is None else probs.new_empty((handle.tokens, handle.experts))

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(_MISSING.format(f"HybridEPBuffer.{name}"))


def _finished(work: Any, async_finish: bool) -> EventOverlap:
    if not async_finish:
        work.wait()
    return EventOverlap(work)


def _gather_rows(rows: torch.Tensor, count: int) -> torch.Tensor:
    """The kernel that orders rows: each is read and written once."""
    key = (count, rows.device)
    if key not in _orders:
        _orders[key] = torch.zeros(count, dtype=torch.int32, device=rows.device)
    return torch.index_select(rows, 0, _orders[key])


_orders: dict[tuple[int, torch.device], torch.Tensor] = {}


def _choices(loads: tuple[int, ...], rows: int, like: torch.Tensor) -> torch.Tensor:
    """For each of the rows that arrived the local experts that it chose, -1 in places left over."""
    key = (loads, rows)
    if key not in _chosen:
        width = max(like.shape[1], -(-sum(loads) // rows))
        flat = torch.full((width * rows,), -1, dtype=like.dtype)
        flat[: sum(loads)] = torch.repeat_interleave(torch.arange(len(loads)), torch.tensor(loads))
        _chosen[key] = flat.view(width, rows).t().contiguous().to(like.device)
    return _chosen[key]


_chosen: dict[tuple[tuple[int, ...], int], torch.Tensor] = {}


class _DeviceMemory:
    """Memory that the library takes from the device itself, past PyTorch's allocator; never given back."""

    def __init__(self, size: int) -> None:
        runtime, self.address = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
        if size and runtime.cudaMalloc(ctypes.byref(self.address), ctypes.c_size_t(size)):
            raise torch.OutOfMemoryError(f"CUDA out of memory: DeepEP's buffer takes {size / 2**30:.2f} GiB")
