"""Figures as people read them. Inside presim a quantity has one unit: ns, bytes, FLOPs."""

from __future__ import annotations

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def gib(size: float) -> str:
    """Bytes as GiB; small sizes as MiB or KiB.

    >>> gib(3 * GIB / 2), gib(5 << 20), gib(0)
    ('1.50 GiB', '5.0 MiB', '0 B')
    """
    magnitude = abs(size)
    if magnitude >= GIB / 10:
        return f"{size / GIB:.1f} GiB" if magnitude >= 10 * GIB else f"{size / GIB:.2f} GiB"
    if magnitude >= MIB:
        return f"{size / MIB:.1f} MiB"
    return f"{size / KIB:.1f} KiB" if magnitude >= KIB else f"{size:.0f} B"


def seconds(value: float) -> str:
    """Seconds with three digits and the unit that suits them.

    >>> seconds(1.2345), seconds(0.0123), seconds(4.56e-5), seconds(0)
    ('1.23 s', '12.3 ms', '45.6 us', '0 s')
    """
    for size, unit in _TIMES:
        if abs(value) >= size * 0.9995:
            return f"{three_digits(value / size)} {unit}"
    return f"{value * 1e9:.0f} ns" if value else "0 s"


def seconds_range(low: float, high: float) -> str:
    """Two durations; the unit is said once where it is the same.

    >>> seconds_range(0.747, 0.935), seconds_range(0.747, 1.2)
    ('747 to 935 ms', '747 ms to 1.20 s')
    """
    first, last = seconds(low), seconds(high)
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(' ' + unit) else first} to {last}"


def three_digits(value: float) -> str:
    """A number with three significant digits, never in exponents.

    >>> three_digits(1.2345), three_digits(12.345), three_digits(1234.5)
    ('1.23', '12.3', '1234')
    """
    magnitude = abs(value)
    decimals = 2 if magnitude < 9.995 else 1 if magnitude < 99.95 else 0
    return f"{value:.{decimals}f}"


def plain(value: float, digits: int = 3) -> str:
    """A number with so many significant digits at most; from 1,000 on a whole one, never in exponents of ten.

    >>> plain(0.0784), plain(142.4), plain(2_281.4), plain(12_345.6, 4)
    ('0.0784', '142', '2,281', '12,346')
    """
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share of 1 as a percentage.

    >>> percent(0.1234), percent(0.0004), percent(0)
    ('12.3%', '<0.1%', '0%')
    """
    if not share:
        return "0%"
    return f"{share * 100:.1f}%" if abs(share) >= 0.0005 else "<0.1%"


def count(value: float) -> str:
    """A large count with a letter.

    >>> count(950), count(12_345), count(8_030_000_000), count(3.2e15)
    ('950', '12.3 k', '8.03 B', '3200 T')
    """
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{three_digits(value / size)} {letter}"
    return f"{value:.0f}"


def rate(bytes_per_s: float) -> str:
    """Bytes per second, in powers of ten as bandwidths are quoted.

    >>> rate(3.35e12), rate(50e9), rate(3.125e9), rate(0)
    ('3.35 TB/s', '50.0 GB/s', '3.12 GB/s', '0 GB/s')
    """
    if bytes_per_s >= 999.5e9:
        return f"{three_digits(bytes_per_s / 1e12)} TB/s"
    return f"{three_digits(bytes_per_s / 1e9)} GB/s" if bytes_per_s else "0 GB/s"
