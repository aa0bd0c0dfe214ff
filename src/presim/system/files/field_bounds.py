"""Types of the numbers in files, each with its least and its largest value.

A reader that converts a file to a struct refuses a number outside of the bounds of its field, so that nothing behind it
divides by zero or exceeds 64 bits. The bounds are beyond anything that exists: a wrong unit may pass, 1e-300 does not.
Numbers that are options as well have the bounds of `presim.units.quantities`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.units import quantities
from presim.units.quantities import Quantity


def bounds(quantity: Quantity) -> msgspec.Meta:
    """The bounds of an option's quantity, for a field of a file."""
    lower, upper = quantity.least, quantity.greatest
    if quantity.is_whole:
        lower, upper = int(lower), int(upper)
    return msgspec.Meta(gt=lower, le=upper) if quantity.is_open else msgspec.Meta(ge=lower, le=upper)


# Whole numbers.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
PositiveCount = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]  # of a kernel's work: elements, FLOPs
Version = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Integer = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]  # with a sign, as differences and categories have it

# Times.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Microseconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
PositiveMicroseconds = Annotated[float, msgspec.Meta(ge=1e-6, le=1e9)]
Nanoseconds = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
WholeNanoseconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]

# Rates; of `GBps`, 0 mostly stands for an unknown or missing link.
GBps = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
PositiveGBps = Annotated[float, bounds(quantities.GBPS)]
PerSecond = Annotated[float, msgspec.Meta(ge=0, le=1e15)]

# Ratios.
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
PositiveRatio = Annotated[float, msgspec.Meta(ge=1e-6, le=1e6)]  # divides: an efficiency, a factor of a speed
Coefficient = Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)]  # with a sign
Real = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]  # a quantity with a sign, in any unit
