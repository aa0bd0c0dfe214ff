"""The calls of a signature, by its family."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from presim.profile.calls import elementwise, indexing, norms, optimizers, packing, random_numbers, reductions, softmax
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

_Propose: TypeAlias = Callable[[Any], Iterator[Call]]
_FAMILIES: dict[type[MemoryBound], tuple[tuple[_Propose, frozenset[str]], ...]] = {
    Elementwise: (
        (elementwise.proposed, elementwise.OPERATORS),
        (packing.proposed, packing.OPERATORS),
    ),
    Index: ((indexing.proposed, indexing.OPERATORS),),
    Normalization: ((norms.proposed, norms.OPERATORS),),
    Optimizer: ((optimizers.proposed, optimizers.OPERATORS),),
    Random: ((random_numbers.proposed, random_numbers.OPERATORS),),
    Reduction: ((reductions.proposed, reductions.OPERATORS),),
    Softmax: ((softmax.proposed, softmax.OPERATORS),),
}


def is_known(signature: MemoryBound) -> bool:
    """Whether calls exist for the signature's operator."""
    return any(signature.operator in names for _, names in _FAMILIES.get(type(signature), ()))


@functools.lru_cache(maxsize=4096)
def calls(signature: MemoryBound) -> tuple[Call, ...]:
    """Every call that a capture would give this signature; none where its bytes are those of other operands."""
    makers = [propose for propose, names in _FAMILIES.get(type(signature), ()) if signature.operator in names]
    proposed = (call for propose in makers for call in propose(signature))
    return tuple(dict.fromkeys(call for call in proposed if gives(call, signature)))


def operators() -> list[tuple[type[MemoryBound], str]]:
    """All families and operators with calls."""
    return [(kind, operator) for kind, parts in _FAMILIES.items() for _, names in parts for operator in sorted(names)]
