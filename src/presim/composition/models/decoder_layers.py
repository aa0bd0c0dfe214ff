"""Kinds of a decoder's layers: what mixes tokens, what follows it, and what each keeps for tokens and sequences.

Sizes are those of the model's own modules, before any parallelism.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

Part = Literal["mixer", "router", "experts", "shared", "dense", "beside", "small", "embedding", "head", "encoder"]


WeightType = Literal["bf16", "fp8", "fp8-block", "fp4", "fp4-only", "mxfp4", "int4", "int8", "int8-only"]


class Weight(msgspec.Struct, frozen=True):
    """A parameter of a module, by its name within the layer or the model."""

    name: str
    shape: tuple[int, ...]
    part: Part
    stored: WeightType = "bf16"  # in the checkpoint

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return math.prod(self.shape)


class Indexer(msgspec.Struct, frozen=True):
    """Sparse attention: an indexer scores all keys of a query, which attends to those with the highest scores."""

    heads: int
    dim: int  # of a head, and of the one key for all heads
    keys: int  # keys that a query attends to


class Attention(msgspec.Struct, frozen=True, tag="attention"):
    """Attention over keys and values of all tokens, of a sliding window, or of the chunk that holds the query."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int = 0  # newest tokens that a query attends to; 0: all
    is_chunked: bool = False  # `window` is the size of chunks that do not attend to each other
    gated: bool = False  # the output is multiplied by a gate, which is projected with the queries
    # queries and keys are normalised over all heads, so ranks all-reduce their sums of squares
    whole_norms: bool = False
    reuses_cache: bool = False  # reads keys and values of an earlier layer
    projects_values: bool = True  # values have a projection of their own; else they are the keys
    indexer: Indexer | None = None  # chooses blocks of keys (MiniMax-M3)

    @property
    def token_elements(self) -> int:
        """Elements that the layer keeps of a token, the indexer's key among them."""
        if self.reuses_cache:
            return 0
        return self.kv_heads * (self.head_dim + self.value_dim) + (self.indexer.dim if self.indexer else 0)


class Latent(msgspec.Struct, frozen=True, tag="latent"):
    """DeepSeek's multi-head latent attention."""

    heads: int
    query_rank: int  # 0: queries are not compressed
    rank: int
    nope: int
    rope: int
    value: int
    indexer: Indexer | None = None
    sparse_keys: int = 0  # keys that a query attends to, chosen by this layer's indexer or an earlier one's; 0: all
    expanded: bool = False  # vLLM keeps keys and values of each head instead, values padded to keys (MiniCPM3)

    @property
    def token_elements(self) -> int:
        """Elements that the layer keeps of a token, the indexer's key among them."""
        if self.expanded:
            return 2 * self.heads * (self.nope + self.rope)
        return self.rank + self.rope + (self.indexer.dim if self.indexer else 0)


class Compressed(msgspec.Struct, frozen=True, tag="compressed"):
    """DeepSeek-V4's attention: a window of tokens, and entries that each stand for ``ratio`` older tokens."""

    heads: int
    head_dim: int  # of a query, and of the one entry that is key and value
    query_rank: int
    output_groups: int
    output_rank: int  # of each group
    window: int
    ratio: int = 0  # tokens of an entry; 0: the window alone
    indexer: Indexer | None = None  # chooses entries; its own keys are compressed likewise

    @property
    def token_elements(self) -> float:
        """Elements kept of each token beyond the window."""
        return (self.head_dim + (self.indexer.dim if self.indexer else 0)) / self.ratio if self.ratio else 0


class DeltaNet(msgspec.Struct, frozen=True, tag="delta_net"):
    """A gated delta net: a state of keys times values for each head, after a short convolution."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    gate_ranks: tuple[int, ...] = ()  # Kimi's: gates by channel, through products of these ranks

    @property
    def mixed(self) -> int:
        """Elements of a token's queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_elements(self) -> int:
        """Elements of a sequence's state."""
        return self.value_heads * self.key_dim * self.value_dim

    @property
    def convolved(self) -> int:
        """Elements that the convolution keeps of a sequence."""
        return (self.kernel - 1) * self.mixed


class Mamba(msgspec.Struct, frozen=True, tag="mamba"):
    """A selective state space: Mamba 2 with heads and groups, or Mamba 1 with a state for each channel."""

    inner: int  # channels
    state: int
    kernel: int
    heads: int = 0  # 0: Mamba 1
    groups: int = 1
    step_rank: int = 0  # of Mamba 1

    @property
    def mixed(self) -> int:
        """Channels of the convolution."""
        return self.inner + (2 * self.groups * self.state if self.heads else 0)

    @property
    def state_elements(self) -> int:
        """Elements of a sequence's state."""
        return self.inner * self.state

    @property
    def convolved(self) -> int:
        """Elements that the convolution keeps of a sequence."""
        return (self.kernel - 1) * self.mixed


class ShortConvolution(msgspec.Struct, frozen=True, tag="short_convolution"):
    """A gated convolution over the newest tokens (LFM2)."""

    inner: int
    kernel: int

    @property
    def mixed(self) -> int:
        """Channels of the convolution."""
        return self.inner

    @property
    def state_elements(self) -> int:
        """It has no state beside the convolution's inputs."""
        return 0

    @property
    def convolved(self) -> int:
        """Elements that the convolution keeps of a sequence."""
        return (self.kernel - 1) * self.inner


class LinearAttention(msgspec.Struct, frozen=True, tag="linear_attention"):
    """Attention without softmax, whose keys and values are summed into a state (MiniMax-M1)."""

    heads: int
    head_dim: int

    @property
    def state_elements(self) -> int:
        """Elements of a sequence's state."""
        return self.heads * self.head_dim * self.head_dim

    @property
    def mixed(self) -> int:
        """It has no convolution."""
        return 0

    @property
    def convolved(self) -> int:
        """It has no convolution."""
        return 0


Recurrent = DeltaNet | Mamba | ShortConvolution | LinearAttention
Cached = Attention | Latent | Compressed
Mixer = Attention | Latent | Compressed | DeltaNet | Mamba | ShortConvolution | LinearAttention


class Dense(msgspec.Struct, frozen=True, tag="dense"):
    """A feed-forward of two matrices, or of three with a gate."""

    width: int
    matrices: int = 3
    shared: bool = False  # beside experts, for all tokens


class Experts(msgspec.Struct, frozen=True, tag="experts"):
    """A mixture of experts, without those that all tokens share."""

    count: int
    chosen: int
    width: int
    hidden: int  # width of an expert's input
    matrices: int = 3
    idle: int = 0  # further choices of the router that compute nothing (LongCat)


FeedForward = Dense | Experts


class Layer(msgspec.Struct, frozen=True):
    """A layer: mixers side by side, then feed-forwards side by side, and all its parameters."""

    mixers: tuple[Mixer, ...]
    feed_forwards: tuple[FeedForward, ...]
    weights: tuple[Weight, ...]

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(weight.elements for weight in self.weights)

    @property
    def text(self) -> str:
        """Its parts in words, without their widths."""
        mixers = [_words(mixer) for mixer in self.mixers]
        feed_forwards = [
            f"{part.chosen} of {part.count} experts"
            if isinstance(part, Experts)
            else "shared"
            if part.shared
            else "dense"
            for part in self.feed_forwards
        ]
        return " + ".join([*mixers, *feed_forwards]) or "empty"

    @property
    def experts(self) -> Experts | None:
        """Its experts, if it has some."""
        return next((part for part in self.feed_forwards if isinstance(part, Experts)), None)

    @property
    def cached(self) -> tuple[Cached, ...]:
        """Mixers that keep something of every token."""
        return tuple(mixer for mixer in self.mixers if isinstance(mixer, Attention | Latent | Compressed))

    @property
    def recurrent(self) -> tuple[Recurrent, ...]:
        """Mixers that keep a state for each sequence."""
        return tuple(mixer for mixer in self.mixers if not isinstance(mixer, Attention | Latent | Compressed))


def _words(mixer: Mixer) -> str:
    if isinstance(mixer, Attention):
        reach = (
            f"chunks of {mixer.window}" if mixer.is_chunked else f"window {mixer.window}" if mixer.window else "full"
        )
        if mixer.indexer:
            return f"attention to {mixer.indexer.keys} keys"
        return f"{reach} attention" + (" (earlier layer's cache)" if mixer.reuses_cache else "")
    if isinstance(mixer, Latent):
        return f"latent attention to {mixer.sparse_keys} keys" if mixer.sparse_keys else "latent attention"
    if isinstance(mixer, Compressed):
        return f"window {mixer.window} and entries of {mixer.ratio}" if mixer.ratio else f"window {mixer.window}"
    if isinstance(mixer, Mamba):
        return "Mamba 2" if mixer.heads else "Mamba 1"
    words = {DeltaNet: "gated delta net", ShortConvolution: "short convolution", LinearAttention: "linear attention"}
    return words[type(mixer)]
