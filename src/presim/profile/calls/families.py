"""The calls of a signature, by its family."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from presim.profile.calls import elementwise, indexing, norms, optimizers, random_numbers, reductions, softmax
from presim.profile.calls.call import Call, gives
from presim.trace.signatures import (
    Elementwise,
    Index,
    MemoryBound,
    Normalization,
    Optimizer,
    Random,
    Reduction,
    Softmax,
)

_FAMILIES: dict[type[MemoryBound], tuple[Callable[[Any], Iterator[Call]], frozenset[str]]] = {
    Elementwise: (elementwise.proposed, elementwise.OPERATORS),
    Index: (indexing.proposed, indexing.OPERATORS),
    Normalization: (norms.proposed, norms.OPERATORS),
    Optimizer: (optimizers.proposed, optimizers.OPERATORS),
    Random: (random_numbers.proposed, random_numbers.OPERATORS),
    Reduction: (reductions.proposed, reductions.OPERATORS),
    Softmax: (softmax.proposed, softmax.OPERATORS),
}


def is_known(signature: MemoryBound) -> bool:
    """Whether there are calls of its operator at all."""
    return type(signature) in _FAMILIES and signature.operator in _FAMILIES[type(signature)][1]


@functools.lru_cache(maxsize=4096)
def calls(signature: MemoryBound) -> tuple[Call, ...]:
    """Every call that a capture would give this signature; none where its bytes are those of other operands."""
    if not is_known(signature):
        return ()
    propose, _ = _FAMILIES[type(signature)]
    return tuple(dict.fromkeys(call for call in propose(signature) if gives(call, signature)))


def operators() -> list[tuple[type[MemoryBound], str]]:
    """All families and operators of which there are calls."""
    return [(kind, operator) for kind, (_, names) in _FAMILIES.items() for operator in sorted(names)]
