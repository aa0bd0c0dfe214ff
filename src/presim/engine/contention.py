"""Turns the resource demands of priced work into classes that slow each other in the loop."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.cost import overlap
from presim.cost.price import PricedTrace
from presim.engine import state
from presim.engine.flow_classes import FlowClasses

Ints = NDArray[np.int64]


class Classes:
    """The classes of contention of a job: work of one class asks the same of its GPU."""

    def __init__(self) -> None:
        # Class 0 asks for nothing: ops without a signature, and traces without demands.
        self._numbers: dict[overlap.Demand, int] = {overlap.NOTHING: 0}
        self.flows = FlowClasses()

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, priced: PricedTrace) -> Ints:
        """The class of each signature of the trace's table, and last that of entries without any."""
        demands = priced.demands or (overlap.NOTHING,) * len(priced.prices)
        return np.array([*(self._numbers.setdefault(demand, len(self._numbers)) for demand in demands), 0], np.int64)

    def columns(
        self, *, enabled: bool, growing: bool = False, model: overlap.OverlapModel = overlap.ANALYTIC
    ) -> dict[str, Ints]:
        """``classes``, ``slows``, ``takes`` and those of flows of the loop's program, for all classes seen so far.

        There are no classes if contention is not ``enabled`` or no class slows another; the loop then skips contention.
        ``growing``: classes that slow others may be added later, so the loop accounts for contention from the start.
        """
        slows = np.rint(np.array(overlap.table(list(self._numbers), model)) * state.SCALE).astype(np.int64)
        parts = [(demand.shared_out, demand.shared_in) for demand in self._numbers]
        # rounded down, so that the shares of a port do not exceed it
        takes = np.floor(np.array(parts) * state.SCALE).astype(np.int64)
        has_contention = bool(slows.any() or takes.any() or len(self.flows) > 1)
        count = len(self._numbers) if enabled and (growing or has_contention) else 0
        tables = {"slows": slows.reshape(-1), "takes": takes.reshape(-1)}
        return {
            "classes": np.array([count], np.int64),
            **{name: table if count else np.zeros(0, np.int64) for name, table in tables.items()},
            **self.flows.columns(enabled=enabled, growing=growing),
        }
