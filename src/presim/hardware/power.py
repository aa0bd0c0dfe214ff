"""Power of GPUs by class of work, as shares of their power limit, with sources."""

from __future__ import annotations

import datetime
import functools

import msgspec

from presim.hardware import constants as calibration
from presim.system.files import to_type
from presim.system.files.field_bounds import Share


class PowerShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Power of a class of work as a share of the GPU's limit."""

    meaning: str
    share: Share
    low: Share
    high: Share
    source: str
    date: datetime.date


@functools.cache
def shares() -> dict[str, PowerShare]:
    """Shares by class of work; ``node``: the rest of a node, per GPU."""
    return to_type(calibration.read("power.toml"), dict[str, PowerShare])
