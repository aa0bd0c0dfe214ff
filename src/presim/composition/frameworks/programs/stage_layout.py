"""Which layers of a model each chunk of a pipeline holds. Chunks go from stage to stage, then around again."""

from __future__ import annotations

from collections.abc import Sequence

LAST = -1  # chunk
_PREDICTING = "m"  # as in Megatron's layouts


def divided_layers(layers: int, chunks: int) -> list[range]:
    """The layers of each chunk where all chunks have as many, but for the last ones, which have what is left."""
    per_chunk = -(-layers // chunks)
    begins = [min(chunk * per_chunk, layers) for chunk in range(chunks)]
    return [range(begin, end) for begin, end in zip(begins, [*begins[1:], layers])]


def layout_of(counts: Sequence[int], mtp_layers: int, predicting: int = LAST) -> list[list[str]]:
    """Chunks as Megatron's ``pipeline_model_parallel_layout`` has them; ``counts``: of layers in each.

    ``predicting``: the chunk with the layers that predict further tokens.
    """
    layout = [["decoder"] * count for count in counts]
    layout[0].insert(0, "embedding")
    layout[predicting] += ["mtp"] * mtp_layers
    layout[LAST].append("loss")
    return layout


def read_chunks(text: str) -> tuple[list[range], int]:
    """The layers of each chunk, and the chunk that predicts further tokens, from a text as ``0:4,4:8,60:61,61:61m``."""
    chunks = text.split(",")
    bounds = [chunk.rstrip(_PREDICTING).partition(":") for chunk in chunks]
    predicting = [number for number, chunk in enumerate(chunks) if chunk.endswith(_PREDICTING)]
    return [range(int(begin), int(end)) for begin, _, end in bounds], *(predicting or [LAST])


def chunks_text(chunks: Sequence[range], predicting: int = LAST) -> str:
    """What `read_chunks` reads."""
    words = [f"{chunk.start}:{chunk.stop}" for chunk in chunks]
    if predicting != LAST:
        words[predicting] += _PREDICTING
    return ",".join(words)
