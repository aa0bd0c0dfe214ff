"""The question a collective model answers. A plug-in passes ``tests/conformance/test_collective_models.py``."""

from __future__ import annotations

from typing import Protocol

from presim.cost.price import Price
from presim.hardware import Cluster
from presim.trace.schema import Group
from presim.trace.signatures import Collective


class CollectiveModel(Protocol):
    """Prices collectives; like `Estimator`, it may leave some to the next in the chain."""

    name: str

    def price(self, collective: Collective, group: Group, cluster: Cluster) -> Price | None:
        """From the moment the last member has arrived until it is over, alone on the wires; None: not covered."""
        ...
