"""Power and energy of a step."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc


class PowerPart(msgspec.Struct, frozen=True):
    """A class of work with its power."""

    name: Annotated[str, doc("compute, memory, latency, communication or idle.")]
    seconds: Annotated[float, doc("Seconds of the step; work that is hidden behind other work is not counted.")]
    watts: Annotated[float, doc("Power of one GPU meanwhile.")]
    joules: Annotated[float, doc("Energy of one GPU in the step, hidden communication included.")]


class Energy(msgspec.Struct, frozen=True):
    """Energy of one GPU in the steady step: an estimate from shares of its power limit, by class of work."""

    joules: Annotated[float, doc("Energy of one GPU in a step.")]
    joules_low: Annotated[float, doc("With the lowest measured or assumed power of each class.")]
    joules_high: Annotated[float, doc("With the highest.")]
    watts: Annotated[float, doc("Mean power of one GPU.")]
    limit_watts: Annotated[float, doc("Its power limit.")]
    parts: Annotated[list[PowerPart], doc("By class of work.")]
