"""The question a network model answers: how long transfers take that run at the same time.

A plug-in passes the checks in `presim.cost.conformance`, as ``tests/conformance/test_network_models.py`` does.
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
    """A collective of one group, while the groups of the same kind exchange likewise.

    ``running``: the groups that exchange, as far as a simulation knows; none: all groups of the kind.
    """

    collective: Collective
    group: Group
    running: tuple[tuple[int, ...], ...] = ()


class NetworkModel(Protocol):
    """Prices transfers; like `Estimator`, it may leave some to the next in the chain."""

    name: str

    def price(self, transfers: Sequence[Transfer], cluster: Cluster) -> Sequence[Price | None]:
        """One price per transfer of a set that runs at the same time; None: not covered.

        A price is the time from the moment the last member has arrived until the transfer is over, if all others of
        the set went on for so long. The engine asks for sets of one and shares links itself. A set of one is the
        transfer alone. Transfers that others price are in the set too, because they are on the same links.
        """
        ...


class Uncongested(abc.ABC):
    """A `NetworkModel` without congestion: each transfer of a set takes as long as alone."""

    name: str

    def price(self, transfers: Sequence[Transfer], cluster: Cluster) -> list[Price | None]:
        """One price per transfer, whatever else is in the set."""
        return [self.alone(one.collective, one.group, cluster) for one in transfers]

    @abc.abstractmethod
    def alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        """From the moment the last member has arrived until it is over; None: not covered."""


def first_answers(
    models: Sequence[NetworkModel], transfers: Sequence[Transfer], cluster: Cluster
) -> list[Price | None]:
    """Per transfer of a set the answer of the first model that covers it; models are asked as long as one is open."""
    found: list[Price | None] = [None] * len(transfers)
    for model in models:
        if all(found):
            break
        found = [known or answer for known, answer in zip(found, model.price(transfers, cluster), strict=True)]
    return found
