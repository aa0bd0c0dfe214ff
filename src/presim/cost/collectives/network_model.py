"""Interface of network models: the duration of transfers that run at the same time.

A plug-in passes the checks in `presim.cost.estimator_conformance`, as
``tests/conformance/test_network_models.py`` does.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Protocol

import msgspec

from presim.cost.price import Price
from presim.hardware import Cluster
from presim.trace.collective import Collective
from presim.trace.schema import Group


class Transfer(msgspec.Struct, frozen=True):
    """A collective of one group, while other groups of the same parallelism run the same collective.

    ``running``: the groups that are active in the simulation; empty: all groups of that parallelism.
    """

    collective: Collective
    group: Group
    running: tuple[tuple[int, ...], ...] = ()


class NetworkModel(Protocol):
    """Prices transfers. Like an `Estimator`, it may leave some to the next model in the chain."""

    name: str

    def price(self, transfers: Sequence[Transfer], cluster: Cluster) -> Sequence[Price | None]:
        """One price per transfer of a set that runs at the same time; None: not covered.

        A price is the time from the arrival of the last member to the end of the transfer, if all other transfers of
        the set last as long. A set of one is a transfer alone. The set includes transfers that other models price,
        because they use the same links.
        """
        ...


class Uncongested(abc.ABC):
    """A `NetworkModel` without congestion: a transfer takes as long in a set as alone."""

    name: str

    def price(self, transfers: Sequence[Transfer], cluster: Cluster) -> list[Price | None]:
        """One price per transfer, independent of the other transfers in the set."""
        return [self.alone(transfer.collective, transfer.group, cluster) for transfer in transfers]

    @abc.abstractmethod
    def alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        """Price from the arrival of the last member to the end; None: not covered."""


def first_answers(
    models: Sequence[NetworkModel], transfers: Sequence[Transfer], cluster: Cluster
) -> list[Price | None]:
    """Per transfer of a set, the price of the first model that covers it."""
    prices: list[Price | None] = [None] * len(transfers)
    for model in models:
        if all(prices):
            break
        prices = [price or answer for price, answer in zip(prices, model.price(transfers, cluster), strict=True)]
    return prices
