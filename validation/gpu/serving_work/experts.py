"""Routed experts with few tokens: vLLM's Triton kernel, and PyTorch's grouped product.

The tokens are sorted by expert before the time begins; vLLM does this with a small kernel of its own each layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch

from serving_work.pointwise import silu_and_mul
from serving_work.timing import Case, Run, copies, normal

MODELS = {  # name: experts, chosen, hidden, width
    "qwen3-30b-a3b": (128, 8, 2048, 768),
    "mixtral-8x7b/2": (8, 2, 4096, 7168),
}
TOKENS = (1, 4, 16, 64, 256, 1024)
PARTS = ("gate_up", "down", "layer")
FP8 = torch.float8_e4m3fn


class Layer:
    """Routing and buffers of one layer's experts; weights are given apart."""

    def __init__(self, model: str, tokens: int, kind: str, device: str = "cuda") -> None:
        from vllm.model_executor.layers.fused_moe.fused_moe import try_get_optimal_moe_config

        self.count, self.chosen, self.hidden, self.width = MODELS[model]
        self.kind, rows = kind, tokens * self.chosen
        dtype = FP8 if kind == "float8" else torch.bfloat16
        shapes = (self.count, 2 * self.width, self.hidden), (self.count, self.hidden, self.width)
        self.config = try_get_optimal_moe_config(*shapes, self.chosen, _config_name(kind), tokens)
        self.x = normal(tokens, self.hidden, dtype=dtype, device=device)
        self.up = normal(tokens, self.chosen, 2 * self.width, device=device)
        self.active = normal(rows, self.width, device=device)
        self.quantised = self.active.to(dtype)
        self.down = normal(tokens, self.chosen, self.hidden, device=device)
        self.weights = torch.rand(tokens, self.chosen, device=device)
        self.one = torch.ones(1, device=device) if kind == "float8" else None
        self.scales = torch.ones(self.count, device=device) if kind == "float8" else None
        chosen = torch.rand(tokens, self.count).topk(self.chosen).indices
        self.picks, self.busy = chosen, len(chosen.unique())
        order = assignment(chosen, self.config["BLOCK_SIZE_M"], self.count)
        self.order = [None if part is None else torch.tensor(part, device=device, dtype=torch.int32) for part in order]

    def product(self, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, *, last: bool) -> None:
        """One of the two grouped products."""
        from triton.language import bfloat16
        from vllm.model_executor.layers.fused_moe.fused_moe import invoke_fused_moe_triton_kernel

        invoke_fused_moe_triton_kernel(
            *(x, weight, out, self.one, self.scales, self.weights, *self.order, last, 1 if last else self.chosen),
            *(self.config, bfloat16, self.kind == "float8", False, False, False, False),
        )

    def run(self, part: str, gate_up: torch.Tensor, down: torch.Tensor) -> None:
        """A part of the layer, or all of it without sorting."""
        if part != "down":
            self.product(self.x, gate_up, self.up, last=False)
        if part == "layer":
            silu_and_mul(self.up.view(-1, 2 * self.width), self.active)
            if self.kind == "float8":
                self.quantised.copy_(self.active)
        if part != "gate_up":
            x = self.quantised if self.kind == "float8" else self.active
            self.product(x, down, self.down, last=True)
        if part == "layer":
            self.down.sum(1)


def _config_name(kind: str) -> str | None:
    return "fp8_w8a8" if kind == "float8" else None


def assignment(
    chosen: torch.Tensor, block: int, count: int, *, sorts: bool = False
) -> tuple[list[int] | None, list[int], list[int]]:
    """Tokens sorted by expert and filled up to blocks, the blocks' experts, and the number of places.

    As in vLLM: with very few tokens nothing is sorted, unless the kernel ``sorts``, and every choice has a block of its
    own.
    """
    rows = chosen.numel()
    if rows * 4 <= count and not sorts:
        return None, chosen.flatten().tolist(), [rows * block]
    places, blocks = [], []
    for expert in range(count):
        mine = (chosen.flatten() == expert).nonzero().flatten().tolist()
        filled = -len(mine) % block
        places += mine + [rows] * filled
        blocks += [expert] * ((len(mine) + filled) // block)
    most = min(rows * block, rows + count * (block - 1)) // block * block
    blocks += [-1] * (max(most, len(places)) // block - len(blocks))
    total = len(places)
    places += [rows] * (len(blocks) * block - total)
    return places, blocks, [total]


@functools.lru_cache(maxsize=1)
def weights(model: str, kind: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Two layers' weights, as random as they are large."""
    count, _, hidden, width = MODELS[model]
    dtype = FP8 if kind == "float8" else torch.bfloat16
    shapes = (count, 2 * width, hidden), (count, hidden, width)
    return [tuple(normal(*shape, dtype=dtype, scale=0.02) for shape in shapes) for _ in range(4)]


def routed(model: str, tokens: int, kind: str, part: str) -> list[Run]:
    """Calls on layers with weights of their own."""
    layer = Layer(model, tokens, kind)
    used = layer.busy * layer.hidden * layer.width * layer.x.element_size()
    return [functools.partial(layer.run, part, *both) for both in weights(model, kind)[: copies(used)]]


def grouped(model: str, tokens: int, part: str) -> list[Run]:
    """PyTorch's grouped product on sorted tokens."""
    count, chosen, hidden, width = MODELS[model]
    picks = torch.rand(tokens, count).topk(chosen).indices.flatten()
    ends = torch.bincount(picks, minlength=count).cumsum(0).to("cuda", torch.int32)
    x = normal(tokens * chosen, hidden if part == "gate_up" else width)
    sides = [both[PARTS.index(part)].transpose(1, 2) for both in weights(model, "bfloat16")]
    return [functools.partial(torch._grouped_mm, x, side, offs=ends) for side in sides]


def cases() -> Iterator[Case]:
    """Both models, both types, one product or the layer."""
    for model in MODELS:
        for kind in ("bfloat16", "float8"):
            for tokens in TOKENS:
                for part in PARTS:
                    shape = {"kernel": "triton", "model": model, "tokens": tokens, "kind": kind, "part": part}
                    yield Case("experts", shape, functools.partial(routed, model, tokens, kind, part))
        for tokens in TOKENS:
            for part in PARTS[:2]:
                shape = {"kernel": "grouped_mm", "model": model, "tokens": tokens, "kind": "bfloat16", "part": part}
                yield Case("experts", shape, functools.partial(grouped, model, tokens, part))


def compiles() -> list[Callable[[], object]]:
    """What compiles the Triton kernels of each case, without weights: the kernel's code depends on shapes alone."""
    return [
        functools.partial(_compiled, model, kind, tokens)
        for model in MODELS
        for kind in ("bfloat16", "float8")
        for tokens in TOKENS
    ]


def _compiled(model: str, kind: str, tokens: int) -> None:
    layer = Layer(model, tokens, kind, "meta")  # the GPU is being measured by another process
    dtype = FP8 if kind == "float8" else torch.bfloat16
    shapes = (layer.count, 2 * layer.width, layer.hidden), (layer.count, layer.hidden, layer.width)
    layer.run("gate_up", *(torch.empty(shape, device="meta", dtype=dtype) for shape in shapes))
    layer.run("down", *(torch.empty(shape, device="meta", dtype=dtype) for shape in shapes))
