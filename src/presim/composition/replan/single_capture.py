"""Whether one capture by itself says what a model of more layers does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.layer_growth import Calls
from presim.composition.replan.layer_regions import Regions
from presim.errors import InputError
from presim.trace.collective import Collective
from presim.trace.schema import Kind, Phase
from presim.units import gib

_ADVICE = "capture it with another number of layers as well, and name both: --larger DIR"
_CASTS = 2.0  # gradients may have twice the bytes of parameters: fp32 and bf16
_LEAST_BYTES = 1 << 20  # of a collective that may hold gradients


def check_alone(
    calls: Calls, regions: Regions, is_outside: NDArray[np.bool_], num_layers: int, other_bytes: int
) -> None:
    """Check that all layers between the first and the last are alike, and that no exchange outside holds their parts.

    ``other_bytes``: of this rank's parameters that belong to no layer.

    Raises:
        InputError: something depends on the number of layers in a way that another capture has to show.
    """
    counts = regions.counts[regions.steps != 0]
    if counts.min() < num_layers - 2:
        raise InputError(
            f"only {counts.min()} of {num_layers} layers do the same in a pass, because something that depends on "
            f"their number lies between them, as buckets of gradients do; {_ADVICE}"
        )
    model = calls.trace.manifest.model
    local, total = model.get("parameters_local", 0), model.get("parameters", 0)
    limit_bytes = max(_CASTS * other_bytes * (total / local if local else 1.0), _LEAST_BYTES)
    kinds, phases = (calls.trace.columns[name][calls.entries] for name in ("kind", "phase"))
    is_exchange = is_outside & (kinds == Kind.COLLECTIVE) & np.isin(phases, [Phase.BACKWARD, Phase.OPTIMIZER])
    for call in np.flatnonzero(is_exchange).tolist():
        signature = calls.signature(call)
        if isinstance(signature, Collective) and signature.bytes > limit_bytes:
            raise InputError(
                f"outside of the layers, this job exchanges {gib(signature.bytes)} by {signature.kind}, more than all "
                f"parameters that belong to no layer, so its size depends on the number of layers; {_ADVICE}"
            )
