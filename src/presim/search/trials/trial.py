"""A trial: a point of the space, its fate, and its figures or the reason why it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Value: TypeAlias = bool | int | float | str
Point: TypeAlias = dict[str, Value]  # knob -> value
Fate: TypeAlias = Literal["priced", "pruned", "illegal", "failed", "open"]
# priced: simulated, whether it fits or not. pruned: a rule proves that it is not the best. illegal: the plan cannot be.
# failed: it could not be captured or composed. open: the budget ended before.


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one plan comes to; times are of a steady step, memory of the fullest rank."""

    gpu: str = ""  # its id in the catalogue
    gpus: int
    step_time_s: float
    low_s: float  # 80 % interval
    high_s: float
    tokens_per_step: float | None  # of the whole job
    mfu: float | None
    fits: bool | None
    memory_bytes: int  # what the device holds at the peak
    headroom_bytes: int  # negative where it does not fit
    compute_s: float
    communication_s: float
    exposed_communication_s: float
    host_bound_s: float
    idle_s: float
    joules: float | None = None  # of one GPU in a step, an estimate
    limits: list[str] = []  # what limits the step, largest first
    by_category: dict[str, int] = {}  # bytes at the peak
    source: Literal["composed", "captured"] = "composed"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger."""

    number: int  # place in the space, or order of a sampler's proposals
    point: Point
    fate: Fate
    figures: Figures | None = None
    rule: str = ""  # which pruned it
    witness: Point | None = None  # the point that the rule compares with
    words: str = ""  # the equation, the rule's numbers, or the failure

    @property
    def fits(self) -> bool:
        """Whether it was priced and fits its GPU."""
        return self.figures is not None and self.figures.fits is not False


def key(point: Mapping[str, Value]) -> str:
    """A point as text, the same for equal points.

    >>> key({"tensor": 2, "reshard": True, "gpu": "h100-sxm"})
    'gpu=h100-sxm reshard=true tensor=2'
    """
    return " ".join(f"{name}={said(point[name])}" for name in sorted(point))


def said(value: Value) -> str:
    """A value as it is typed.

    >>> said(True), said(8), said(0.5)
    ('true', '8', '0.5')
    """
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
