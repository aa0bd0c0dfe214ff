"""The calls of a signature, by its family."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from presim.cost.profile.calls import (
    elementwise,
    indexing,
    norms,
    optimizers,
    packing,
    random_numbers,
    reductions,
    softmax,
)
from presim.cost.profile.calls.call import Call, matches
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

_Propose: TypeAlias = Callable[[Any], Iterator[Call]]
_FAMILIES: dict[type[MemoryBound], tuple[tuple[_Propose, frozenset[str]], ...]] = {
    Elementwise: (
        (elementwise.propose, elementwise.OPERATORS),
        (packing.propose, packing.OPERATORS),
    ),
    Index: ((indexing.propose, indexing.OPERATORS),),
    Normalization: ((norms.propose, norms.OPERATORS),),
    Optimizer: ((optimizers.propose, optimizers.OPERATORS),),
    Random: ((random_numbers.propose, random_numbers.OPERATORS),),
    Reduction: ((reductions.propose, reductions.OPERATORS),),
    Softmax: ((softmax.propose, softmax.OPERATORS),),
}


def is_known(signature: MemoryBound) -> bool:
    """Whether calls exist for the signature's operator."""
    return any(signature.operator in names for _, names in _FAMILIES.get(type(signature), ()))


@functools.lru_cache(maxsize=4096)
def calls(signature: MemoryBound) -> tuple[Call, ...]:
    """Every call that a capture would record with this signature; empty if its bytes do not fit."""
    makers = [propose for propose, names in _FAMILIES.get(type(signature), ()) if signature.operator in names]
    candidates = (call for propose in makers for call in propose(signature))
    return tuple(dict.fromkeys(call for call in candidates if matches(call, signature)))


def operators() -> list[tuple[type[MemoryBound], str]]:
    """All families and operators with calls."""
    return [(kind, operator) for kind, parts in _FAMILIES.items() for _, names in parts for operator in sorted(names)]
