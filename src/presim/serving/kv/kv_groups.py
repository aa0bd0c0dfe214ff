"""Groups of layers that share block tables, as vLLM's hybrid KV cache manager makes them (0.33, kv_cache_planning.py).

All groups draw pages from one pool, so a page of each group has as many bytes, and each group has as many layers as
possible. A page of a state holds one state; its padding is wasted. Layers that set their pages by themselves
(DeepSeek-V4's) are packed: a page of a group is one page of each of its layers, whatever their sizes (`_packed`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from presim.errors import InputError
from presim.serving.kv.kv_layers import Kind, KvLayer, every_layer

_KERNEL_TOKENS = 16  # FlashAttention's blocks are multiples of it
_LATENT_TOKENS = 128  # and those of latent attention beside states


@dataclasses.dataclass(frozen=True)
class Spec:
    """How one layer keeps its tokens or its state."""

    kind: Kind
    block_tokens: int  # of a page; of a state: tokens between two states that are kept
    page_bytes: int
    window: int = 0
    heads: int = 1

    @property
    def keeps_all(self) -> bool:
        """Whether no page is freed before its request ends."""
        return self.kind in ("full", "latent")


@dataclasses.dataclass(frozen=True)
class KvGroup:
    """Layers with one block table."""

    specs: tuple[Spec, ...]  # of its layers
    layers: tuple[int, ...]  # their places in the model

    @property
    def spec(self) -> Spec:
        """The specification that stands for the group."""
        return self.specs[0]

    def page_bytes(self, first: int = 0, end: int = 1 << 30) -> int:
        """Bytes of a page of its layers from ``first`` to before ``end``."""
        return sum(spec.page_bytes for layer, spec in zip(self.layers, self.specs) if first <= layer < end)

    def pages(self, tokens: int, in_flight_tokens: int, resident_states: int) -> int:
        """Pages of a request of so many tokens at most.

        ``in_flight_tokens``: of all steps in flight; windows free their pages when a step is back.
        """
        return max(_pages(spec, tokens, in_flight_tokens, resident_states) for spec in set(self.specs))


def _pages(spec: Spec, tokens: int, in_flight_tokens: int, resident_states: int) -> int:
    if spec.kind == "state":
        return resident_states
    if spec.kind == "sliding":  # one more, as a window need not start with a block
        return -(-min(spec.window - 1 + in_flight_tokens, tokens) // spec.block_tokens) + 1
    if spec.kind == "chunked":
        return -(-min(spec.window + in_flight_tokens, tokens) // spec.block_tokens)
    return -(-tokens // spec.block_tokens)


def block_tokens_for(layers: Sequence[KvLayer], block_tokens: int) -> int:
    """Tokens of a block: more than asked for where a page has to be as large as a state.

    vLLM 0.33, platforms/interface.py, `_align_hybrid_block_size`.
    """
    state_bytes = max((layer.state_bytes for layer in layers if layer.kind == "state"), default=0)
    attends = [layer for layer in layers if layer.kind != "state"]
    if not state_bytes or not attends:
        return block_tokens
    step = max(_KERNEL_TOKENS, block_tokens, _LATENT_TOKENS if attends[0].kind == "latent" else 0)
    return max(block_tokens, step * math.ceil(state_bytes / (step * attends[0].token_bytes)))


def groups(layers: Sequence[KvLayer], block_tokens: int) -> tuple[KvGroup, ...]:
    """The groups of a model's layers. ``block_tokens``: of a page, before pages are made equal."""
    if any(layer.page_bytes for layer in layers):
        return _packed(
            [Spec(layer.kind, layer.page_tokens, layer.page_bytes, layer.window) for layer in every_layer(layers)]
        )
    block_tokens = block_tokens_for(layers, block_tokens)
    attends = [layer for layer in layers if layer.kind != "state"]
    state_page = block_tokens * attends[0].token_bytes if attends else 0  # states are padded to it
    specs = [_spec(layer, block_tokens, state_page) for layer in every_layer(layers)]
    if len({(spec.kind, spec.window) for spec in map(_type, specs)}) == 1:  # as many pages for every layer
        return (KvGroup(tuple(specs), tuple(range(len(specs)))),)
    return _equal_groups(_equal_pages(specs))


def _spec(layer: KvLayer, block_tokens: int, state_page: int) -> Spec:
    if layer.kind == "state":
        return Spec("state", block_tokens, max(layer.state_bytes, state_page), heads=layer.heads)
    return Spec(layer.kind, block_tokens, layer.token_bytes * block_tokens, layer.window, layer.heads)


def _type(spec: Spec) -> Spec:
    """What decides whether layers need pages for the same tokens: latent attention keeps all tokens, too."""
    if spec.kind == "state":
        return dataclasses.replace(spec, window=spec.page_bytes)
    return dataclasses.replace(spec, kind="full") if spec.kind == "latent" else spec


def _equal_pages(specs: Sequence[Spec]) -> list[Spec]:
    """Specifications with pages of one size: more tokens a page where sizes divide, padding elsewhere."""
    largest = max(spec.page_bytes for spec in specs)
    equal = []
    for spec in specs:
        if spec.kind != "state" and largest % spec.page_bytes == 0:
            ratio = largest // spec.page_bytes
            equal.append(dataclasses.replace(spec, page_bytes=largest, block_tokens=spec.block_tokens * ratio))
        elif spec.kind == "latent":
            raise InputError(
                f"pages of latent attention ({spec.page_bytes:,} bytes) do not divide the largest page of the model "
                f"({largest:,} bytes), and vLLM pads only others; choose another --block-size"
            )
        else:
            equal.append(dataclasses.replace(spec, page_bytes=largest))
    return equal


def _equal_groups(specs: Sequence[Spec]) -> tuple[KvGroup, ...]:
    """Groups of nearly equal size; layers of a kind are dealt out in turn, so that pipeline stages have some of each.

    The rarest kind sets the size, unless the commonest has less than 1.5 times as many layers.
    """
    kinds: dict[Spec, list[int]] = {}
    for layer, spec in enumerate(specs):
        kinds.setdefault(spec, []).append(layer)
    fewest, commonest = min(map(len, kinds.values())), max(map(len, kinds.values()))
    size = commonest if commonest < fewest * 1.5 else fewest
    dealt = []
    for spec, places in kinds.items():
        count = -(-len(places) // size)
        for first in range(count):
            layers = tuple(places[first::count])
            dealt.append(KvGroup((spec,) * len(layers), layers))
    return tuple(dealt)


def _packed(specs: Sequence[Spec]) -> tuple[KvGroup, ...]:
    """Groups of layers that hold the same tokens; those with as many pages of each size are dealt out evenly.

    vLLM 0.33, `_get_packed_kv_cache_groups`.
    """
    buckets: dict[tuple[Kind, int, int], list[int]] = {}
    for layer, spec in enumerate(specs):
        buckets.setdefault((spec.kind, spec.window, spec.block_tokens), []).append(layer)
    bucket_sizes = [_by_size(specs, bucket) for bucket in buckets.values()]
    repeats = [len(next(iter(sizes.values()))) if _is_balanced(sizes) else 0 for sizes in bucket_sizes]
    least = max((count for count, sizes in zip(repeats, bucket_sizes) if len(sizes) > 1), default=0)
    dealt_size = _least_padding([count for count in repeats if count], least) if least else 0
    packed = []
    for bucket, sizes, count in zip(buckets.values(), bucket_sizes, repeats):
        num_groups = -(-count // dealt_size) if count and dealt_size else 1
        patterns = list(zip(*sizes.values())) if num_groups > 1 else [tuple(bucket)]
        for first in range(num_groups):
            layers = tuple(sorted(layer for pattern in patterns[first::num_groups] for layer in pattern))
            packed.append(KvGroup(tuple(specs[layer] for layer in layers), layers))
    return tuple(packed)


def _by_size(specs: Sequence[Spec], layers: Sequence[int]) -> dict[int, list[int]]:
    sizes: dict[int, list[int]] = {}
    for layer in layers:
        sizes.setdefault(specs[layer].page_bytes, []).append(layer)
    return sizes


def _is_balanced(sizes: dict[int, list[int]]) -> bool:
    return len({len(layers) for layers in sizes.values()}) == 1


def _least_padding(counts: Sequence[int], least: int) -> int:
    """The size of groups, from ``least`` on, by which all counts are rounded up least; the largest such size."""
    return min(range(least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


@dataclasses.dataclass(frozen=True)
class Pool:
    """The pages of an engine."""

    groups: tuple[KvGroup, ...]
    page_bytes: int  # on the fullest pipeline stage
    in_flight_tokens: int  # of all steps in flight
    resident_states: int  # states of a request at most, in each of their groups

    @property
    def block_tokens(self) -> int:
        """Tokens of a page of the group by which prefixes are found: one that keeps all tokens, if there is one."""
        return next((group for group in self.groups if group.spec.keeps_all), self.groups[0]).spec.block_tokens

    def pages(self, tokens: int) -> int:
        """Pages of a request of so many tokens at most."""
        return sum(group.pages(tokens, self.in_flight_tokens, self.resident_states) for group in self.groups)

    def longest(self, pages: int, limit: int) -> int:
        """Tokens of the longest request, up to ``limit``, that so many pages hold; 0: none."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.pages(middle) <= pages else (low, middle - 1)
        return low

    def tokens(self, pages: int, longest: int) -> int:
        """Tokens that vLLM says its cache holds: of as many requests of ``longest`` tokens as there are pages for."""
        return pages * longest // self.pages(longest)


def pool(
    layers: Sequence[KvLayer],
    block_tokens: int,
    *,
    stages: int = 1,
    last: Sequence[KvLayer] = (),
    in_flight_tokens: int = 0,
    resident_states: int = 1,
) -> Pool:
    """The pool of a model's layers. ``last``: layers that only the last stage has, such as a drafter's."""
    model_groups = groups((*layers, *last), block_tokens)
    count, drafter_count = sum(layer.count for layer in layers), sum(layer.count for layer in last)
    stage_layers = -(-count // stages)
    stage_bounds = [(first, min(first + stage_layers, count)) for first in range(0, count, stage_layers)]
    stage_bounds[-1] = stage_bounds[-1][0], count + drafter_count
    page_bytes = max(group.page_bytes(first, end) for group in model_groups for first, end in stage_bounds)
    return Pool(model_groups, page_bytes, in_flight_tokens, resident_states)
