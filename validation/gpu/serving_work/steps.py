"""Whole steps of a decoder as an engine composes them: FlashAttention 3, cuBLAS, Triton kernels for small work.

Every layer has weights and pages of its own. 70B on eight GPUs is one GPU's share without its all-reduces.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Iterator, Sequence

import torch
from torch.nn.functional import embedding, linear

from serving_work import attention
from serving_work.pointwise import add_norm, rotary, silu_and_mul, store
from serving_work.timing import Case, Row, Run, captured, elapsed, normal

POSITIONS = 32768
REPLAYS = 5


@dataclasses.dataclass(frozen=True)
class Sizes:
    """One GPU's share of a decoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    width: int
    vocabulary: int


MODELS = {
    "llama-3-8b": Sizes(32, 4096, 32, 8, 14336, 128256),
    "llama-3-70b/8": Sizes(80, 8192, 8, 1, 3584, 16032),
}
DECODES = ((1, 1024), (1, 4096), (8, 1024), (8, 4096), (32, 1024), (32, 4096), (128, 1024))
PROMPTS = (512, 2048, 8192)
MIXED = ((32, 1024, 480), (32, 1024, 2016))  # decodes, their context, tokens of a prompt


class Decoder:
    """Random weights of a model."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        wide = (sizes.heads + 2 * sizes.kv_heads) * attention.HEAD
        shapes = {
            "qkv": (wide, sizes.hidden),
            "o": (sizes.hidden, sizes.heads * attention.HEAD),
            "gate_up": (2 * sizes.width, sizes.hidden),
            "down": (sizes.hidden, sizes.width),
        }
        self.layers = [
            {name: normal(*shape, scale=0.02) for name, shape in shapes.items()} for _ in range(sizes.layers)
        ]
        self.table = normal(sizes.vocabulary, sizes.hidden)
        self.head = normal(sizes.vocabulary, sizes.hidden, scale=0.02)
        self.norm = torch.ones(sizes.hidden, device="cuda", dtype=torch.bfloat16)
        self.angles = normal(POSITIONS, attention.HEAD)


class Step:
    """One step of a batch: a token of each decoding sequence, or prompts."""

    def __init__(self, model: Decoder, sequences: attention.Sequences) -> None:
        sizes = model.sizes
        self.model, self.batch = model, attention.Batch(sizes.heads, sizes.kv_heads, sequences, torch.bfloat16)
        tokens = self.batch.q.shape[0]
        self.wide = (sizes.heads + 2 * sizes.kv_heads) * attention.HEAD
        self.tokens = torch.randint(sizes.vocabulary, (tokens,), device="cuda")
        self.positions = torch.randint(POSITIONS, (tokens,), device="cuda")
        self.slots = torch.randperm(self.batch.k.shape[0] * attention.PAGE, device="cuda")[:tokens]
        self.last = self.batch.starts[1:].long() - 1  # logits are needed of a sequence's last token only
        self.pages = [self.batch.table() for _ in range(sizes.layers)]

    def __call__(self) -> torch.Tensor:
        """Run it."""
        model, batch, sizes = self.model, self.batch, self.model.sizes
        residual = torch.zeros_like(embedding(self.tokens, model.table))
        x = embedding(self.tokens, model.table)
        made = attention.schedule(batch)
        normed = torch.empty_like(x)
        for layer, pages in zip(model.layers, self.pages):
            add_norm(x, residual, model.norm, normed)
            qkv = linear(normed, layer["qkv"])
            rotary(qkv, sizes.heads + sizes.kv_heads, model.angles, self.positions)
            store(qkv, batch.k, batch.v, self.slots, sizes.heads * attention.HEAD)
            batch.q = qkv[:, : sizes.heads * attention.HEAD].view(-1, sizes.heads, attention.HEAD)
            attention.flash3(batch, pages, made)()
            x = linear(batch.out.view(-1, sizes.heads * attention.HEAD), layer["o"])
            add_norm(x, residual, model.norm, normed)
            both = linear(normed, layer["gate_up"])
            active = torch.empty(both.shape[0], sizes.width, device="cuda", dtype=torch.bfloat16)
            silu_and_mul(both, active)
            x = linear(active, layer["down"])
        add_norm(x, residual, model.norm, normed)
        logits = linear(normed[self.last], model.head)
        return logits.float().argmax(-1)


@functools.lru_cache(maxsize=1)
def decoder(name: str) -> Decoder:
    """The model, kept until another is asked for."""
    return Decoder(MODELS[name])


def whole(calls: Sequence[Run]) -> Row:
    """Seconds of a step in a graph, and launched one by one."""
    (step,) = calls
    step()
    alone = [elapsed(step) for _ in range(3)]
    graph = captured(step)
    graph.replay()
    times = [elapsed(graph.replay) for _ in range(REPLAYS)]
    middle = statistics.median(times)
    return {
        "graph_s": middle,
        "spread": (max(times) - min(times)) / 2 / middle,
        "eager_s": statistics.median(alone),
        "allocated": torch.cuda.memory_allocated(),
    }


def one(name: str, sequences: attention.Sequences) -> list[Run]:
    """The step of a batch."""
    return [Step(decoder(name), sequences)]


def batches() -> list[attention.Sequences]:
    """Decodes, prompts, both together."""
    made: list[attention.Sequences] = [[(count, 1, context)] for count, context in DECODES]
    made += [[(1, prompt, prompt)] for prompt in PROMPTS]
    return made + [[(count, 1, context), (1, prompt, prompt)] for count, context, prompt in MIXED]


def cases() -> Iterator[Case]:
    """Steps of both models."""
    for name in MODELS:
        for sequences in batches():
            shape: Row = {"model": name, "sequences": sequences}
            yield Case("step", shape, functools.partial(one, name, sequences), whole)


def attention_cases() -> Iterator[Case]:
    """The attention of these steps, alone."""
    for sizes in MODELS.values():
        for sequences in batches():
            yield attention.case("flash3", sizes.heads, sizes.kv_heads, sequences)
