"""Norms, activations, rotary embedding and the cache's writes at decode sizes, and what a CUDA graph adds to kernels.

The Triton kernels do what inductor or vLLM's own kernels do, in one pass.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Iterator, Sequence

import torch
import triton
import triton.language as tl

from serving_work.timing import Case, Row, Run, captured, copies, elapsed, in_order, normal

TOKENS = (1, 8, 32, 128, 512, 2048, 8192)
CYCLES = (0, 5_000, 10_000, 20_000)


@triton.jit(do_not_specialize=["width"])
def add_norm_kernel(x, residual, weight, out, width, BLOCK: tl.constexpr):
    """``residual += x; out = rms_norm(residual) * weight``, a row a program."""
    at = tl.arange(0, BLOCK)
    inside = at < width
    row = tl.program_id(0).to(tl.int64) * width
    total = tl.load(x + row + at, inside, 0.0).to(tl.float32) + tl.load(residual + row + at, inside, 0.0)
    tl.store(residual + row + at, total, inside)
    scale = tl.rsqrt(tl.sum(total * total) / width + 1e-5)
    tl.store(out + row + at, total * scale * tl.load(weight + at, inside, 0.0), inside)


@triton.jit(do_not_specialize=["width"])
def silu_kernel(x, out, width, BLOCK: tl.constexpr):
    """``out = silu(gate) * up`` of rows [gate, up]."""
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    gate = tl.load(x + row * 2 * width + at, at < width, 0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + at, at < width, 0.0).to(tl.float32)
    tl.store(out + row * width + at, gate * tl.sigmoid(gate) * up, at < width)


@triton.jit(do_not_specialize=["heads"])
def rotary_kernel(x, table, positions, heads, row, HALF: tl.constexpr):
    """Turn the first ``heads`` heads of each row, in place."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, HALF)
    angle = table + tl.load(positions + token) * 2 * HALF
    cos, sin = tl.load(angle + at).to(tl.float32), tl.load(angle + HALF + at).to(tl.float32)
    place = x + token * row + head * 2 * HALF + at
    first, second = tl.load(place).to(tl.float32), tl.load(place + HALF).to(tl.float32)
    tl.store(place, first * cos - second * sin)
    tl.store(place + HALF, second * cos + first * sin)


@triton.jit(do_not_specialize=["start"])
def store_kernel(x, keys, values, slots, start, row, WIDTH: tl.constexpr):
    """Write a token's keys and values, which follow each other from column ``start`` on, into its slot of the cache."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    at = tl.arange(0, WIDTH)
    tl.store(keys + slot * WIDTH + at, tl.load(x + token * row + start + at))
    tl.store(values + slot * WIDTH + at, tl.load(x + token * row + start + WIDTH + at))


def add_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """Residual addition and RMS norm."""
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    add_norm_kernel[(rows,)](x, residual, weight, out, width, BLOCK=block, num_warps=max(1, min(16, block // 256)))


def silu_and_mul(x: torch.Tensor, out: torch.Tensor) -> None:
    """Gated activation."""
    rows, width = out.shape
    silu_kernel[(rows, triton.cdiv(width, 1024))](x, out, width, BLOCK=1024, num_warps=4)


def rotary(qkv: torch.Tensor, heads: int, table: torch.Tensor, positions: torch.Tensor) -> None:
    """Rotary embedding of queries and keys."""
    rotary_kernel[(qkv.shape[0], heads)](qkv, table, positions, heads, qkv.stride(0), HALF=64, num_warps=1)


def store(qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, start: int) -> None:
    """Keys and values, from column ``start`` on, into the cache."""
    width = keys.shape[-2] * keys.shape[-1]
    store_kernel[(qkv.shape[0],)](qkv, keys, values, slots, start, qkv.stride(0), WIDTH=width, num_warps=4)


def norms(tokens: int, hidden: int) -> list[Run]:
    """Calls of `add_norm`."""
    weight = normal(hidden)
    sets = [[normal(tokens, hidden) for _ in range(3)] for _ in range(copies(6 * tokens * hidden))]
    return [functools.partial(add_norm, x, residual, weight, out) for x, residual, out in sets]


def activations(tokens: int, width: int) -> list[Run]:
    """Calls of `silu_and_mul`."""
    sets = [(normal(tokens, 2 * width), normal(tokens, width)) for _ in range(copies(6 * tokens * width))]
    return [functools.partial(silu_and_mul, x, out) for x, out in sets]


def embeddings(tokens: int, heads: int, kv_heads: int) -> list[Run]:
    """Calls of `rotary`."""
    width = (heads + 2 * kv_heads) * 128
    table, positions = normal(8192, 128), torch.randint(8192, (tokens,), device="cuda")
    sets = [normal(tokens, width) for _ in range(copies(2 * tokens * width))]
    return [functools.partial(rotary, qkv, heads + kv_heads, table, positions) for qkv in sets]


def writes(tokens: int, heads: int, kv_heads: int) -> list[Run]:
    """Calls of `store`."""
    width, slots = (heads + 2 * kv_heads) * 128, 1 << 17
    keys, values = (normal(slots, kv_heads, 128) for _ in range(2))
    places = torch.randperm(slots, device="cuda")[:tokens]
    sets = [normal(tokens, width) for _ in range(copies(2 * tokens * width))]
    return [functools.partial(store, qkv, keys, values, places, heads * 128) for qkv in sets]


def cases() -> Iterator[Case]:
    """Layers of Llama 8B, and of 70B on eight GPUs."""
    for tokens in TOKENS:
        for hidden in (4096, 8192):
            shape = {"kernel": "add_norm", "tokens": tokens, "width": hidden}
            yield Case("pointwise", shape, functools.partial(norms, tokens, hidden))
        for width in (14336, 3584):
            shape = {"kernel": "silu_and_mul", "tokens": tokens, "width": width}
            yield Case("pointwise", shape, functools.partial(activations, tokens, width))
        for heads, kv_heads in ((32, 8), (8, 1)):
            for name, make in (("rotary", embeddings), ("store", writes)):
                shape = {"kernel": name, "tokens": tokens, "heads": heads, "kv_heads": kv_heads}
                yield Case("pointwise", shape, functools.partial(make, tokens, heads, kv_heads))


def replays(kernels: int, cycles: int, calls: Sequence[Run]) -> Row:
    """Device and host time of replays of a graph of kernels that each wait for so many cycles."""
    graph = captured(lambda: in_order(list(calls) * kernels))
    graph.replay()
    once = statistics.median(elapsed(graph.replay) for _ in range(9))
    twice = statistics.median(elapsed(lambda: (graph.replay(), graph.replay())) for _ in range(9))
    torch.cuda.synchronize()
    host, both = [], []
    for _ in range(20):
        began = time.perf_counter()
        graph.replay()
        host.append(time.perf_counter() - began)
        torch.cuda.synchronize()
        both.append(time.perf_counter() - began)
    middle = statistics.median
    return {"once_s": once, "twice_s": twice, "host_s": middle(host), "until_done_s": middle(both), "cycles": cycles}


def launch_cases() -> Iterator[Case]:
    """Graphs of kernels of known length: what is left over is the gap between kernels and the graph's launch."""
    for kernels in (1, 10, 100, 300, 1000):
        for cycles in CYCLES if kernels in (100, 300) else CYCLES[:1]:
            measure = functools.partial(replays, kernels, cycles)
            shape = {"kernel": "wait", "kernels": kernels, "cycles": cycles}
            yield Case("graph", shape, functools.partial(_waits, cycles), measure)
        small = functools.partial(replays, kernels, 0)
        yield Case("graph", {"kernel": "add", "kernels": kernels, "elements": 1024}, _adds, small)


def _waits(cycles: int) -> list[Run]:
    return [functools.partial(torch.cuda._sleep, cycles)]


def _adds() -> list[Run]:
    one = normal(1024)
    return [lambda: one.add_(1)]
