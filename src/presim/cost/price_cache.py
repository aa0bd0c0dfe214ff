"""Cached prices: within a process, each signature is priced once per GPU."""

from __future__ import annotations

from presim.cost.chain import Chain
from presim.cost.price import Estimator, Price
from presim.trace.signatures import Signature

_MOST = 200_000  # largest number of cached signatures


class CachedEstimator:
    """An estimator that caches the prices of another one."""

    def __init__(self, estimator: Estimator) -> None:
        self.name = estimator.name
        self._estimator = estimator
        self._known: dict[Signature, Price | None] = {}

    def price(self, signatures: list[Signature]) -> list[Price | None]:
        """Prices from the cache, or from the wrapped estimator."""
        unknown = [signature for signature in dict.fromkeys(signatures) if signature not in self._known]
        if unknown:
            if len(self._known) > _MOST:
                self._known.clear()
                unknown = list(dict.fromkeys(signatures))
            self._known.update(zip(unknown, self._estimator.price(unknown)))
        return [self._known[signature] for signature in signatures]


def with_caches(chain: Chain) -> Chain:
    """The chain with caching estimators."""
    return Chain([CachedEstimator(estimator) for estimator in chain.estimators], chain.collective_models, chain.device)
