"""A trial: one point of the space, its fate, and its figures or the reason why it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from presim.system.files.field_bounds import Bytes, Count, Integer, Ratio, Real, Seconds

Value: TypeAlias = bool | Integer | Real | str
Point: TypeAlias = dict[str, Value]  # knob -> value
Fate: TypeAlias = Literal["priced", "pruned", "illegal", "failed", "open"]
# priced: simulated, whether it fits or not. pruned: a rule proves that it is not the best. illegal: not a valid
# plan. failed: it could not be captured or composed. open: the budget ended first.


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one plan: times of a steady step, memory of the rank that uses most."""

    gpu: str = ""  # its id in the catalogue
    gpus: Count
    gpus_by_kind: dict[str, Count] = {}  # number of each kind; empty: all are ``gpu``
    step_time_s: Seconds
    low_s: Real  # 80 % interval
    high_s: Real
    tokens_per_step: Real | None  # whole job
    mfu: Ratio | None
    fits: bool | None
    memory_bytes: Bytes  # peak memory in use on the device
    headroom_bytes: Integer  # negative if it does not fit
    compute_s: Real
    communication_s: Real
    exposed_communication_s: Real
    host_bound_s: Real
    idle_s: Real
    joules: Real | None = None  # estimated energy of one GPU per step
    limits: list[str] = []  # limiting factors, largest first
    by_category: dict[str, Integer] = {}  # bytes at the peak
    # framework: extended from its captures; extended: from captures of other points of a command
    source: Literal["composed", "captured", "framework", "extended"] = "composed"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger."""

    number: Count  # place in the space, or order of a sampler's proposals
    point: Point
    fate: Fate
    figures: Figures | None = None
    rule: str = ""  # rule that pruned it
    witness: Point | None = None  # the point that the rule compares with
    words: str = ""  # failing equation, numbers of the rule, or error text
    lacks_bytes: Bytes | None = None  # lower bound of the memory that a pruned plan lacks

    @property
    def fits(self) -> bool:
        """Whether the trial was priced and fits its GPU."""
        return self.figures is not None and self.figures.fits is not False


def key(point: Mapping[str, Value]) -> str:
    """Canonical text of a point; equal points have equal text.

    >>> key({"tensor": 2, "reshard": True, "gpu": "h100-sxm"})
    'gpu=h100-sxm reshard=true tensor=2'
    """
    return " ".join(f"{name}={format_value(point[name])}" for name in sorted(point))


def format_value(value: Value) -> str:
    """A value as users type it.

    >>> format_value(True), format_value(8), format_value(0.5)
    ('true', '8', '0.5')
    """
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
