"""Paged attention as vLLM runs it on Hopper (FlashAttention 3), with vLLM's Triton kernel and PyTorch's beside it.

Keys and values lie in pages of 16 tokens at random places of a pool that is far larger than the L2 cache.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from serving_work.timing import Case, Row, Run, copies, eager, in_graph, normal

HEAD = 128
PAGE = 16
POOL_BYTES = 12 << 30
SPLITS = 32  # vLLM's flash_attn_max_num_splits_for_cuda_graph
GRAPH_TOKENS = 512  # steps of more tokens run without a graph, and FlashAttention chooses the splits
SEGMENTS, LEAST_GRID = 16, 128  # of the Triton kernel, as vLLM calls it
HEADS = ((32, 8), (64, 8), (8, 1))  # query and key heads: Llama 8B, 70B, 70B on eight GPUs
BATCHES = (1, 8, 32, 64, 128, 256)
CONTEXTS = (512, 2048, 8192, 32768)
PROMPTS = (512, 2048, 8192)
Sequences = Sequence[tuple[int, int, int]]  # count, queries, keys with those


@functools.cache
def library() -> object:
    """FlashAttention 3's operators from vLLM's package, which is not imported."""
    spec = importlib.util.find_spec("vllm")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for folder in folders for path in Path(folder).glob("vllm_flash_attn/_vllm_fa3_C*.so")]
    if not found:
        raise RuntimeError("vLLM's vllm_flash_attn/_vllm_fa3_C*.so is not there")
    torch.ops.load_library(str(found[0]))
    return torch.ops._vllm_fa3_C


@functools.cache
def pool() -> torch.Tensor:
    """Random memory for keys and values."""
    return normal(POOL_BYTES // 2)


@functools.cache
def pool_of_8_bits() -> torch.Tensor:
    """A quarter of it in FP8."""
    return torch.cat([part.to(torch.float8_e4m3fn) for part in pool()[: POOL_BYTES // 4].chunk(8)])


def cache(kv_heads: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Pages of keys and of values."""
    memory = pool() if dtype.itemsize == 2 else pool_of_8_bits()
    pages = memory.numel() // 2 // (PAGE * kv_heads * HEAD)
    both = memory[: 2 * pages * PAGE * kv_heads * HEAD].view(2, pages, PAGE, kv_heads, HEAD)
    return both[0], both[1]


class Batch:
    """Inputs of one step's attention."""

    def __init__(self, heads: int, kv_heads: int, sequences: Sequences, dtype: torch.dtype) -> None:
        queries = [asked for count, asked, _ in sequences for _ in range(count)]
        keys = [kept for count, _, kept in sequences for _ in range(count)]
        self.heads, self.kv_heads, self.size = heads, kv_heads, len(keys)
        self.longest_query, self.longest = max(queries), max(keys)
        self.k, self.v = cache(kv_heads, dtype)
        self.q = normal(sum(queries), heads, HEAD, dtype=dtype)
        self.out = torch.empty(sum(queries), heads, HEAD, device="cuda", dtype=torch.bfloat16)
        starts = [0]
        for asked in queries:
            starts.append(starts[-1] + asked)
        self.starts = torch.tensor(starts, device="cuda", dtype=torch.int32)
        self.used = torch.tensor(keys, device="cuda", dtype=torch.int32)
        self.splits = SPLITS if sum(queries) <= GRAPH_TOKENS else 0
        scale = torch.ones(self.size, kv_heads, device="cuda")
        self.descale = None if dtype.itemsize == 2 else scale

    def table(self) -> torch.Tensor:
        """Pages of every sequence."""
        shape = (self.size, math.ceil(self.longest / PAGE))
        return torch.randint(self.k.shape[0], shape, device="cuda", dtype=torch.int32)


def schedule(batch: Batch) -> torch.Tensor:
    """What vLLM computes once a step for all layers."""
    return library().get_scheduler_metadata(
        *(batch.size, batch.longest_query, batch.longest, batch.heads, batch.kv_heads, HEAD, HEAD, batch.q.dtype),
        *(batch.used, batch.starts, None, None, None, None, PAGE, 0, True, -1, -1, False, batch.splits, None, 0),
    )


def flash3(batch: Batch, table: torch.Tensor, made: torch.Tensor) -> Run:
    """One layer's attention by FlashAttention 3."""
    scales = (batch.descale,) * 3
    return lambda: library().fwd(
        *(batch.q, batch.k, batch.v, None, None, None, batch.out, batch.starts, None, None, None, batch.used),
        *(batch.longest_query, batch.longest, table, None, None, None, None, None, *scales, HEAD**-0.5, True),
        *(-1, -1, 0.0, True, made, batch.splits, None, 0, None, 1, 0, None),
    )


def triton(batch: Batch, table: torch.Tensor) -> Run:
    """One layer's attention by vLLM's Triton kernel."""
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention  # only where it is measured

    threshold = LEAST_GRID // batch.kv_heads
    parts = torch.empty(threshold, batch.heads, SEGMENTS, HEAD, device="cuda")
    most, sums = (torch.empty(threshold, batch.heads, SEGMENTS, device="cuda") for _ in range(2))
    return lambda: unified_attention(
        *(batch.q, batch.k, batch.v, batch.out, batch.starts, batch.longest_query, batch.used, batch.longest),
        *(HEAD**-0.5, True, (-1, -1), table, 0, None, None, None, threshold, SEGMENTS, parts, most, sums),
    )


def paged(kernel: str, heads: int, kv_heads: int, sequences: Sequences, dtype: torch.dtype) -> list[Run]:
    """The same batch on several sets of pages."""
    batch = Batch(heads, kv_heads, sequences, dtype)
    held = sum(count * keys for count, _, keys in sequences) * kv_heads * HEAD * 2 * dtype.itemsize
    tables = [batch.table() for _ in range(copies(held))]
    if kernel == "schedule":
        library()
        return [lambda: schedule(batch)]
    if kernel == "triton":
        return [triton(batch, table) for table in tables]
    made = schedule(batch)
    return [flash3(batch, table, made) for table in tables]


def plain(backend: SDPBackend, heads: int, kv_heads: int, count: int, queries: int, keys: int) -> list[Run]:
    """PyTorch's attention over keys and values that lie together."""
    shapes = ((heads, queries), (kv_heads, keys), (kv_heads, keys))

    def made() -> Run:
        q, k, v = (normal(count, number, length, HEAD) for number, length in shapes)

        def run() -> object:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, is_causal=queries > 1, enable_gqa=True)

        return run

    return [made() for _ in range(min(copies(count * keys * kv_heads * HEAD * 4), 8))]


def case(kernel: str, heads: int, kv_heads: int, sequences: Sequences, dtype: str = "bfloat16") -> Case:
    """A batch; long steps are not captured."""
    shape: Row = {"kernel": kernel, "heads": heads, "kv_heads": kv_heads, "sequences": sequences, "dtype": dtype}
    made = functools.partial(paged, kernel, heads, kv_heads, sequences, getattr(torch, dtype))
    tokens = sum(count * asked for count, asked, _ in sequences)
    return Case("attention", shape, made, in_graph if tokens <= GRAPH_TOKENS else eager)


def cases() -> Iterator[Case]:
    """Decodes, prompts with and without cached tokens, both together; then FP8, and other kernels."""
    for heads, kv_heads in HEADS:
        for batch in BATCHES:
            yield from (case("flash3", heads, kv_heads, [(batch, 1, context)]) for context in CONTEXTS)
        for prompt in PROMPTS:
            for cached in (0, 2048, 16384):
                yield case("flash3", heads, kv_heads, [(1, prompt, prompt + cached)])
        yield case("flash3", heads, kv_heads, [(4, 2048, 2048)])
        for batch, prompt in ((32, 256), (32, 2048), (128, 384), (128, 2048)):
            yield case("flash3", heads, kv_heads, [(batch, 1, 2048), (1, prompt, prompt)])
    for batch in (1, 32, 256):
        yield case("schedule", 32, 8, [(batch, 1, 2048)])
    for batch, context in ((1, 8192), (32, 2048), (128, 2048), (128, 8192)):
        yield case("flash3", 32, 8, [(batch, 1, context)], "float8_e4m3fn")


def other_cases() -> Iterator[Case]:
    """Kernels that vLLM does not choose on Hopper."""
    for batch, context in ((1, 2048), (1, 32768), (8, 8192), (32, 2048), (128, 2048)):
        yield case("triton", 32, 8, [(batch, 1, context)])
    yield case("triton", 32, 8, [(1, 2048, 2048)])
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        for count, queries, keys in ((1, 1, 8192), (32, 1, 2048), (128, 1, 2048), (1, 2048, 2048), (1, 8192, 8192)):
            shape = {"kernel": backend.name.lower(), "heads": 32, "kv_heads": 8, "dtype": "bfloat16"}
            shape["sequences"] = [(count, queries, keys)]
            yield Case("attention", shape, functools.partial(plain, backend, 32, 8, count, queries, keys))
