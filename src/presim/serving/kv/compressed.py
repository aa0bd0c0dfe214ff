"""Pages of DeepSeek-V4's compressed attention in vLLM 0.33, whatever type of KV cache is asked for.

models/deepseek_v4/attention.py and compressor.py: records of 448 elements in 8 bits, 64 rotary ones in 16, and 8 bytes
of factors; keys of the indexer in 8 bits with a factor of 4 bytes. Entries that are not complete yet are kept as pairs
of 32-bit values and scores for each token.
"""

from __future__ import annotations

import dataclasses
import math

from presim.composition.models.decoder_layers import Compressed

_RECORD_BEYOND_ELEMENTS = 64 + 8
_FACTOR_ELEMENTS, _FACTOR_BYTES = 128, 4
_PAGE_TOKENS = 256
_WINDOW_PAGE_TOKENS = 64
_MULTIPLE = 576  # bytes, of every page
_OVERLAPPING = 4  # tokens of an entry at most, where entries overlap by as many
_UNFINISHED_PAGE_TOKENS = {4: 4, 128: 8}


@dataclasses.dataclass(frozen=True)
class Pages:
    """Pages of a layer that hold the same tokens."""

    tokens: int  # of a page
    window: int  # tokens that are looked back on; 0: all
    sizes: tuple[int, ...]  # bytes: one page for attention, one for the indexer if there is one


def pages_of(mixer: Compressed) -> list[Pages]:
    """What a layer keeps: its window, its entries, and the tokens of entries that are not complete."""
    record = mixer.head_dim + _RECORD_BEYOND_ELEMENTS
    windows = Pages(_WINDOW_PAGE_TOKENS, mixer.window, (_padded(_WINDOW_PAGE_TOKENS * record),))
    if not mixer.ratio:
        return [windows]
    dim = mixer.indexer.dim if mixer.indexer else 0
    entry_sizes = [record, *([dim + dim // _FACTOR_ELEMENTS * _FACTOR_BYTES] if dim else [])]
    entries = tuple(_padded(_PAGE_TOKENS // mixer.ratio * size) for size in entry_sizes)
    overlap = 2 if mixer.ratio <= _OVERLAPPING else 1
    tokens = _UNFINISHED_PAGE_TOKENS.get(mixer.ratio, mixer.ratio)
    widths = [mixer.head_dim, *([dim] if dim else [])]
    unfinished = tuple(_padded(tokens * 2 * overlap * width * 4) for width in widths)
    return [windows, Pages(_PAGE_TOKENS, 0, entries), Pages(tokens, overlap * mixer.ratio, unfinished)]


def token_bytes(mixer: Compressed) -> int:
    """Bytes that a layer keeps of each token beyond its window."""
    return round(sum(sum(pages.sizes) / pages.tokens for pages in pages_of(mixer) if not pages.window))


def _padded(size: int) -> int:
    return math.ceil(size / _MULTIPLE) * _MULTIPLE
