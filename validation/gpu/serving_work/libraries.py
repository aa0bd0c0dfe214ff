"""Kernels of vLLM's own libraries: 4-bit weights (Machete, Marlin), CUTLASS's FP8, norms, activations, rotations.

Only the two libraries that use PyTorch's stable interface are loaded. Packed weights are random bits: what takes time
does not depend on their order.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from serving_work.experts import MODELS, PARTS, TOKENS, assignment
from serving_work.pointwise import TOKENS as LENGTHS
from serving_work.products import FP8, MORE_ROWS, ROWS, SHAPES
from serving_work.timing import Case, Run, copies, normal

LIBRARIES = ("_C_stable_libtorch", "_moe_C_stable_libtorch")
UINT4B8, E2M1 = 1125899907892224, 562949953487106  # vLLM's numbers of its types: 4 bits less 8; FP4
GROUPS = {"uint4": (128, UINT4B8), "mxfp4": (32, E2M1)}  # values that share a factor, number of the type
MOST = {**MODELS, "gpt-oss-120b": (128, 4, 2944, 2944)}  # padded to whole tiles
BLOCKS = (8, 16, 32, 48, 64)  # rows of a block of Marlin's experts
FULL = 0.9  # share of a block that a mean expert fills at most, if a larger one is there


@functools.cache
def operators() -> Any:
    """PyTorch's operators with vLLM's among them."""
    spec = importlib.util.find_spec("vllm")
    for name in LIBRARIES:
        found = [
            path
            for folder in (spec and spec.submodule_search_locations) or ()
            for path in Path(folder).glob(f"{name}*.so")
        ]
        if not found:
            raise RuntimeError(f"vLLM's {name}*.so is not there")
        torch.ops.load_library(str(found[0]))
    return torch.ops


def _bits(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31 - 1, shape, device="cuda", dtype=torch.int32)


def _factors(*shape: int, kind: str) -> torch.Tensor:
    if kind == "mxfp4":
        return torch.randint(118, 122, shape, device="cuda", dtype=torch.uint8).view(torch.float8_e8m0fnu)
    return normal(*shape, scale=0.01)


def machete(m: int, n: int, k: int) -> list[Run]:
    """16-bit rows and 4-bit weights by Machete, which vLLM chooses on Hopper."""
    ops, x = operators()._C, normal(m, k)
    call = functools.partial(ops.machete_mm, x)
    runs: list[Run] = []
    for _ in range(copies(n * k // 2)):
        packed = _bits(n, k // 8).t()  # column by column
        weight = ops.machete_prepack_B(packed, torch.bfloat16, UINT4B8, torch.bfloat16)
        scales = normal(k // 128, n, scale=0.01)
        runs.append(functools.partial(call, weight, UINT4B8, None, scales, None, 128, None, None, None))
    return runs


def marlin(m: int, n: int, k: int) -> list[Run]:
    """The same by Marlin, which vLLM chooses on other GPUs."""
    ops, x = operators()._C, normal(m, k)
    locks = _locks()
    sides = [(_bits(k // 16, n * 2), normal(k // 128, n, scale=0.01)) for _ in range(copies(n * k // 2))]
    end = (None, None, None, locks, UINT4B8, m, n, k, False, True, False)
    return [functools.partial(ops.marlin_gemm, x, None, weight, None, scales, *end) for weight, scales in sides]


def _locks() -> torch.Tensor:
    return torch.zeros(torch.cuda.get_device_properties(0).multi_processor_count * 4, dtype=torch.int32, device="cuda")


def cutlass(m: int, n: int, k: int) -> list[Run]:
    """FP8 with a factor for each row and column."""
    ops, x, out = operators()._C, normal(m, k, dtype=FP8), normal(m, n)
    of_x, of_w = torch.full((m, 1), 1.0, device="cuda"), torch.full((1, n), 0.02, device="cuda")
    weights = [normal(n, k, dtype=FP8) for _ in range(copies(n * k))]
    return [functools.partial(ops.cutlass_scaled_mm, out, x, w.t(), of_x, of_w, None) for w in weights]


@functools.lru_cache(maxsize=1)
def weights(model: str, kind: str) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Four layers: weights and factors of both products."""
    count, _, hidden, width = MOST[model]
    group = GROUPS[kind][0]
    return [
        [
            (_bits(count, k // 16, n * 2), _factors(count, k // group, n, kind=kind))
            for n, k in ((2 * width, hidden), (hidden, width))
        ]
        for _ in range(4)
    ]


class Layer:
    """Experts of one layer by Marlin: routing and buffers; weights are given apart."""

    def __init__(self, model: str, tokens: int, kind: str) -> None:
        self.ops = operators()
        self.count, self.chosen, self.hidden, self.width = MOST[model]
        self.tokens, self.kind = tokens, kind
        mean = tokens * self.chosen / self.count
        self.block = next((rows for rows in BLOCKS if mean / rows < FULL), BLOCKS[-1])
        chosen = torch.rand(tokens, self.count).topk(self.chosen).indices
        self.busy = len(chosen.unique())
        order = assignment(chosen, self.block, self.count, sorts=True)
        self.order = [torch.tensor(part, device="cuda", dtype=torch.int32) for part in order]
        self.x, self.active = normal(tokens, self.hidden), normal(tokens * self.chosen, self.width)
        self.up = normal(tokens * self.chosen, 2 * self.width)
        self.down = normal(tokens * self.chosen, self.hidden)
        self.weights, self.locks = torch.rand(tokens, self.chosen, device="cuda"), _locks()

    def product(
        self, x: torch.Tensor, side: tuple[torch.Tensor, torch.Tensor], out: torch.Tensor, *, last: bool
    ) -> None:
        """One of the two grouped products."""
        weight, factors = side
        k, n = (self.width, self.hidden) if last else (self.hidden, 2 * self.width)
        rows, each = (self.tokens * self.chosen, 1) if last else (self.tokens, self.chosen)
        self.ops._moe_C.moe_wna16_marlin_gemm(
            *(x, out, weight, None, factors, None, None, None, self.locks, *self.order, self.weights),
            *(self.block, each, last, GROUPS[self.kind][1], rows, n, k, False, True, False, -1, -1, -1),
        )

    def run(self, part: str, sides: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """A part of the layer, or all of it without sorting."""
        if part != "down":
            self.product(self.x, sides[0], self.up, last=False)
        if part == "layer":
            self.ops._C.silu_and_mul(self.active, self.up)
        if part != "gate_up":
            self.product(self.active, sides[1], self.down, last=True)
        if part == "layer":
            self.down.view(self.tokens, self.chosen, self.hidden).sum(1)


def routed(model: str, tokens: int, kind: str, part: str) -> list[Run]:
    """Calls on layers with weights of their own."""
    layer = Layer(model, tokens, kind)
    used = layer.busy * layer.hidden * layer.width // 2
    return [functools.partial(layer.run, part, sides) for sides in weights(model, kind)[: copies(used)]]


def norms(tokens: int, width: int) -> list[Run]:
    """Residual addition and RMS norm."""
    weight = normal(width)
    sets = [(normal(tokens, width), normal(tokens, width)) for _ in range(copies(4 * tokens * width))]
    return [functools.partial(operators()._C.fused_add_rms_norm, x, residual, weight, 1e-5) for x, residual in sets]


def activations(tokens: int, width: int) -> list[Run]:
    """Gated activation."""
    sets = [(normal(tokens, width), normal(tokens, 2 * width)) for _ in range(copies(6 * tokens * width))]
    return [functools.partial(operators()._C.silu_and_mul, out, x) for out, x in sets]


def embeddings(tokens: int, heads: int, kv_heads: int) -> list[Run]:
    """Rotary embedding of queries and keys within one projection."""
    width = (heads + 2 * kv_heads) * 128
    table, positions = normal(8192, 128), torch.randint(8192, (tokens,), device="cuda")
    sets = [normal(tokens, width) for _ in range(copies(2 * tokens * width))]
    call = operators()._C.rotary_embedding
    return [
        functools.partial(call, positions, x[:, : heads * 128], x[:, heads * 128 : -kv_heads * 128], 128, table, True)
        for x in sets
    ]


def casts(tokens: int, width: int) -> list[Run]:
    """To FP8, with a factor for each row."""
    sets = [
        (torch.empty(tokens, width, device="cuda", dtype=FP8), normal(tokens, width))
        for _ in range(copies(3 * tokens * width))
    ]
    scales = torch.empty(tokens, 1, device="cuda")
    return [
        functools.partial(operators()._C.dynamic_per_token_scaled_fp8_quant, out, x, scales, None) for out, x in sets
    ]


def cases() -> Iterator[Case]:
    """Products of each layer, experts, and small kernels."""
    kinds: dict[str, Callable[[int, int, int], list[Run]]] = {
        "uint4 machete": machete,
        "uint4 marlin": marlin,
        "float8 rows cutlass": cutlass,
    }
    for kind, make in kinds.items():
        for name, (n, k) in SHAPES.items():
            for m in () if "lm_head" in name else ROWS + MORE_ROWS:
                shape = {"layer": name, "m": m, "n": n, "k": k, "kind": kind}
                yield Case("product", shape, functools.partial(make, m, n, k))
    yield from _small()
    for model in MOST:
        for kind in ("mxfp4",) if model == "gpt-oss-120b" else ("uint4",):
            for tokens in TOKENS:
                for part in PARTS:
                    shape = {"kernel": "marlin", "model": model, "tokens": tokens, "kind": kind, "part": part}
                    yield Case("experts", shape, functools.partial(routed, model, tokens, kind, part))


def _small() -> Iterator[Case]:
    """By the names of the Triton kernels that do the same."""
    for tokens in LENGTHS:
        for width in (4096, 8192):
            for name, make in (("add_norm", norms), ("cast", casts)):
                shape = {"kernel": f"vllm {name}", "tokens": tokens, "width": width}
                yield Case("pointwise", shape, functools.partial(make, tokens, width))
        for width in (14336, 3584):
            shape = {"kernel": "vllm silu_and_mul", "tokens": tokens, "width": width}
            yield Case("pointwise", shape, functools.partial(activations, tokens, width))
        for heads, kv_heads in ((32, 8), (8, 1)):
            shape = {"kernel": "vllm rotary", "tokens": tokens, "heads": heads, "kv_heads": kv_heads}
            yield Case("pointwise", shape, functools.partial(embeddings, tokens, heads, kv_heads))
