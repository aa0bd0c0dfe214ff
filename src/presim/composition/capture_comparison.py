"""Compare a composed job with a captured one: device work, the order of collectives, step time, peak memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping

import msgspec

from presim.trace.schema import Trace
from presim.trace.signatures import (
    Attention,
    Collective,
    Convolution,
    Gemm,
    GroupedGemm,
    Signature,
    SparseProduct,
)

_PRODUCTS = (Gemm, GroupedGemm, SparseProduct, Convolution)


class Difference(msgspec.Struct, frozen=True):
    """A signature whose counts differ between the two jobs."""

    rank: int
    kind: str  # product, attention, collective
    signature: str
    captured: int  # occurrences in the last step
    composed: int


class ComparedFigure(msgspec.Struct, frozen=True):
    """One figure of both jobs."""

    name: str
    unit: str
    captured: float
    composed: float

    @property
    def error(self) -> float:
        """Relative error: composed / captured - 1."""
        return self.composed / self.captured - 1 if self.captured else 0.0


class Turn(msgspec.Struct, frozen=True):
    """The first place at which a rank's collectives come in another order, without those whose counts differ."""

    rank: int
    index: int  # from 0
    captured: str
    composed: str


class Agreement(msgspec.Struct, frozen=True):
    """Agreement and differences between a captured and a composed job."""

    counted: dict[str, int]  # product, attention, collective -> count in the last step of the captured ranks
    differences: tuple[Difference, ...]
    figures: tuple[ComparedFigure, ...]
    turns: tuple[Turn, ...] = ()  # at most one of each rank; none: collectives are launched in the same order
    schema: str = "presim-agreement/1"

    @property
    def same_work(self) -> bool:
        """Whether products, attention and collectives are equal as multisets."""
        return not self.differences

    def error(self, name: str) -> float:
        """The relative error of a figure."""
        return next(figure.error for figure in self.figures if figure.name == name)


def work(trace: Trace) -> Counter[tuple[str, Hashable]]:
    """Products, attention and collectives of the last step, keyed by everything that their price depends on.

    A collective's group counts by size, because frameworks number ranks differently.
    """
    return Counter(_in_order(trace))


def _in_order(trace: Trace) -> list[tuple[str, Hashable]]:
    """The same, one by one, as the host launches them."""
    steps = trace.steps()
    signature_indices: list[int] = trace.columns["signature"][steps[-1] if steps else slice(None)].tolist()
    described = {index: _described(trace, trace.signatures[index]) for index in set(signature_indices) if index >= 0}
    return [description for index in signature_indices if (description := described.get(index)) is not None]


def compare(
    captured: Mapping[int, Trace], composed: Mapping[int, Trace], figures: Iterable[ComparedFigure] = ()
) -> Agreement:
    """Compare the ranks that both jobs contain; ``figures``: whole-job figures to report."""
    counted: Counter[str] = Counter()
    differences, turns = list[Difference](), list[Turn]()
    for rank in sorted(set(captured) & set(composed)):
        captured_order, composed_order = _in_order(captured[rank]), _in_order(composed[rank])
        captured_work, composed_work = Counter(captured_order), Counter(composed_order)
        counted.update(kind for kind, _ in captured_order)
        for key in sorted({*captured_work, *composed_work}, key=repr):
            if captured_work[key] != composed_work[key]:
                differences.append(Difference(rank, key[0], _words(key[1]), captured_work[key], composed_work[key]))
        alike = {key for key in captured_work if key[0] == "collective" and captured_work[key] == composed_work[key]}
        pairs = zip(*([key[1] for key in order if key in alike] for order in (captured_order, composed_order)))
        turn = next(((position, pair) for position, pair in enumerate(pairs) if pair[0] != pair[1]), None)
        if turn is not None:
            turns.append(Turn(rank, turn[0], _words(turn[1][0]), _words(turn[1][1])))
    return Agreement(dict(sorted(counted.items())), tuple(differences), tuple(figures), tuple(turns))


def _described(trace: Trace, signature: Signature) -> tuple[str, Hashable] | None:
    if isinstance(signature, Collective):
        size = trace.manifest.groups[signature.group].size if signature.group >= 0 else 0
        if size == 1:  # a group of one rank sends nothing
            return None
        size = 2 if signature.kind in ("send", "recv") else size  # point-to-point, whatever communicator carries it
        return "collective", (signature.kind, signature.bytes, signature.dtype, size)
    if isinstance(signature, Attention):
        return "attention", signature
    return ("product", signature) if isinstance(signature, _PRODUCTS) else None


def _words(work: Hashable) -> str:
    if isinstance(work, tuple):
        kind, size, dtype, ranks = work
        return f"{kind} of {size:,} bytes, {dtype}, {ranks} ranks"
    fields = msgspec.structs.asdict(work)  # type: ignore[arg-type]
    name = type(work).__name__
    return f"{name}({', '.join(f'{key}={value}' for key, value in fields.items() if value not in ('', 0, ()))})"
