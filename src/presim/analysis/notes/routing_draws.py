"""Percentiles of the step time over several draws of the experts that tokens go to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from presim.analysis.notes.provenance import reaches_experts
from presim.result import Draws, Result
from presim.trace.schema import Trace
from presim.units import seconds

_WORTH_A_NOTE = 0.01  # of the step
_SKEWED = ("uniform", "zipf", "file")


def unseen_ranks(traces: Sequence[Trace]) -> list[str]:
    """A note that ranks which did not run may have more popular experts; none if experts are not drawn."""
    manifest = traces[0].manifest
    routing = manifest.policies.get("routing", "")
    if not routing.startswith(_SKEWED) or len(traces) >= manifest.world_size or not any(map(reaches_experts, traces)):
        return []
    return [
        f"Experts are drawn by routing={routing}, and {len(traces)} of {manifest.world_size} ranks ran: another rank "
        "may have more popular experts and slow down all others. --ranks all includes every rank."
    ]


def over_draws(result: Result, routing: str, step_times_s: Sequence[float]) -> Result:
    """The result of the first draw, with the percentiles of the step time over all draws.

    ``routing``: the policy with the first seed. Each draw has a capture of its own. If the device waits for the host,
    step times therefore also differ by the noise of host times; the note says so.
    """
    low, middle, high = (float(value) for value in np.quantile(step_times_s, (0.1, 0.5, 0.9)))
    draws = Draws(routing, list(step_times_s), low, middle, high)
    note = (
        f"Over {len(step_times_s)} draws of experts (routing={routing} and the next seeds) the step takes "
        f"{seconds(low)} to {seconds(high)} (10th to 90th percentile), with a median of {seconds(middle)}; the other "
        "figures describe the first draw."
    )
    if result.time.host_bound_s > _WORTH_A_NOTE * middle:
        note += " Host times also differ between the captures of the draws; --host-time 0 excludes them."
    return msgspec.structs.replace(result, draws=draws, notes=[note, *result.notes])
