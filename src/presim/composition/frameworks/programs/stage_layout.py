"""Which layers of a model each chunk of a pipeline holds. Chunks go from stage to stage, then around again."""

from __future__ import annotations

from collections.abc import Sequence


def divided_layers(layers: int, chunks: int) -> list[range]:
    """The layers of each chunk where all chunks have as many, but for the last ones, which have what is left."""
    per_chunk = -(-layers // chunks)
    begins = [min(chunk * per_chunk, layers) for chunk in range(chunks)]
    return [range(begin, end) for begin, end in zip(begins, [*begins[1:], layers])]


def layout_of(counts: Sequence[int], mtp_layers: int) -> list[list[str]]:
    """Chunks as Megatron's ``pipeline_model_parallel_layout`` has them; ``counts``: of layers in each."""
    layout = [["decoder"] * count for count in counts]
    layout[0].insert(0, "embedding")
    layout[-1] += ["mtp"] * mtp_layers + ["loss"]
    return layout


def read_chunks(text: str) -> list[range]:
    """The layers of each chunk, from a text as ``0:4,4:8,60:61``."""
    bounds = [chunk.partition(":") for chunk in text.split(",")]
    return [range(int(begin), int(end)) for begin, _, end in bounds]


def chunks_text(chunks: Sequence[range]) -> str:
    """What `read_chunks` reads."""
    return ",".join(f"{chunk.start}:{chunk.stop}" for chunk in chunks)
