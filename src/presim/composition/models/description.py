"""The description of a decoder, which all verbs about served models share."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from presim.composition.models.decoder_layers import (
    Attention,
    Cached,
    Experts,
    Indexer,
    Latent,
    Layer,
    Mixer,
    Recurrent,
    Weight,
    WeightType,
)

UNLIMITED = 1 << 24  # tokens of a model that states no limit: engines take any --max-model-len for it


class Checkpoint(msgspec.Struct, frozen=True):
    """Types of a checkpoint's weights, by what most of them have; each has its own (`Weight.stored`)."""

    weights: WeightType = "bf16"  # of linear layers outside experts
    experts: WeightType | None = None  # of routed experts; None: the same
    method: str = ""  # by its own name, e.g. compressed-tensors; empty: not quantised
    origin: str = ""  # what says so
    cache: Literal["bf16", "fp8"] = "bf16"  # of keys and values, unless the engine is told otherwise
    problem: str = ""  # why presim does not know the types, in a sentence

    @property
    def types(self) -> str:
        """The types in words."""
        return self.weights if self.experts in (None, self.weights) else f"{self.weights}, experts {self.experts}"

    @property
    def text(self) -> str:
        """The types in words, with what says so."""
        return f"{self.types} ({self.origin})" if self.origin else self.types


class Model(msgspec.Struct, frozen=True, dict=True):
    """A decoder: its kinds of layers, which layer is of which kind, and the parameters outside layers."""

    name: str
    architecture: str
    origin: str  # whose code the description is from
    hidden: int
    vocabulary: int
    longest: int  # tokens that it takes
    kinds: tuple[Layer, ...]
    order: tuple[int, ...]  # of each layer: index of its kind
    outside: tuple[Weight, ...]  # embeddings, logits unless tied, norms, encoders of images and sound
    tied: bool = False
    default_length: int = 0  # tokens that engines take unless told otherwise; 0: `longest`
    state_type: Literal["bf16", "float32"] = "bf16"  # of recurrent states
    checkpoint: Checkpoint = Checkpoint()
    notes: tuple[str, ...] = ()  # what of the config or the model is not described, in sentences

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.order)

    def counts(self, first: int = 0, end: int | None = None) -> list[tuple[Layer, int]]:
        """Kinds of the layers from ``first`` up to ``end`` with their numbers."""
        return [(self.kinds[kind], count) for kind, count in sorted(Counter(self.order[first:end]).items())]

    @functools.cached_property
    def mixers(self) -> tuple[Mixer, ...]:
        """The different mixers."""
        return tuple(dict.fromkeys(mixer for kind in self.kinds for mixer in kind.mixers))

    @property
    def cached(self) -> tuple[Cached, ...]:
        """The different mixers that keep something of every token."""
        return tuple(dict.fromkeys(mixer for kind in self.kinds for mixer in kind.cached))

    @property
    def recurrent(self) -> tuple[Recurrent, ...]:
        """The different mixers that keep a state for each sequence."""
        return tuple(dict.fromkeys(mixer for kind in self.kinds for mixer in kind.recurrent))

    @property
    def text(self) -> str:
        """The layers by kind, in words."""
        counts: Counter[str] = Counter()
        for layer, count in self.counts():
            counts[layer.text] += count
        return ", ".join(f"{count} x {words}" for words, count in counts.items())

    @property
    def experts(self) -> Experts | None:
        """The experts of the first layer that has some."""
        return next((kind.experts for kind in self.kinds if kind.experts), None)

    @property
    def latent(self) -> Latent | None:
        """The first latent attention."""
        return next((mixer for mixer in self.mixers if isinstance(mixer, Latent)), None)

    @property
    def indexer(self) -> Indexer | None:
        """The first indexer."""
        return next((mixer.indexer for mixer in self.mixers if getattr(mixer, "indexer", None)), None)  # type: ignore[union-attr]

    @property
    def heads(self) -> tuple[int, ...]:
        """Numbers of query heads of the different attentions."""
        return tuple(dict.fromkeys(mixer.heads for mixer in self.cached))

    @property
    def window(self) -> int:
        """The largest sliding window, in tokens; 0: all attention is over all tokens."""
        return max((mixer.window for mixer in self.mixers if isinstance(mixer, Attention)), default=0)

    @property
    def parameters(self) -> int:
        """Number of parameters, those of encoders of images and sound among them."""
        return sum(weight.elements for weight in self.outside) + sum(
            count * layer.parameters for layer, count in self.counts()
        )

    @property
    def active_parameters(self) -> int:
        """Parameters that a token uses, without encoders of images and sound."""
        return round(
            sum(weight.elements for weight in self.outside if weight.part != "encoder")
            + sum(count * active(layer) for layer, count in self.counts())
        )


def active(layer: Layer) -> float:
    """Parameters of a layer that a token uses."""
    experts = layer.experts
    share = experts.chosen / (experts.count + experts.idle) if experts else 1.0
    return sum(
        weight.elements * (share if weight.part == "experts" else 1.0)
        for weight in layer.weights
        if weight.part != "encoder"
    )


def elements(weights: Iterable[Weight], *parts: str) -> int:
    """Parameters of some parts."""
    return sum(weight.elements for weight in weights if weight.part in parts)
