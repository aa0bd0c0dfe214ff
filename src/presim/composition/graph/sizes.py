"""Sizes of tensors as polynomials in the batch B and the sequence S, so that one graph serves all of both.

>>> read("8192*B*S+1")(b=2, s=3)
49153
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TypeAlias

from presim.errors import InputError
from presim.system.files.field_bounds import Integer

Size: TypeAlias = Integer | str  # a number, or a sum of products such as "8192*B*S" or "S+1"
_NEAREST = 8  # largest offset of a size from a multiple of the sequence: padding, shifted labels


@dataclasses.dataclass(frozen=True)
class Polynomial:
    """A sum of ``factor * B**i * S**j``."""

    terms: tuple[tuple[int, int, int], ...]  # (factor, i, j)

    def __call__(self, b: int, s: int) -> int:
        """Its value for a batch and a sequence length."""
        return sum(factor * b**i * s**j for factor, i, j in self.terms)


@functools.lru_cache(maxsize=65536)
def read(size: Size) -> Polynomial:
    """The polynomial of a size.

    Raises:
        InputError: it is no such sum.
    """
    if isinstance(size, int):
        return Polynomial(((size, 0, 0),))
    try:
        return _polynomial(size)
    except ValueError:
        raise InputError(
            f"a graph has the size {size!r}, which is not a sum of products; export the graph again"
        ) from None


def _polynomial(size: str) -> Polynomial:
    terms = []
    for term in size.replace("-", "+-").split("+"):
        factor, powers = 1, {"B": 0, "S": 0}
        for part in term.split("*"):
            if part in powers:
                powers[part] += 1
            else:
                factor *= int(part)
        terms.append((factor, powers["B"], powers["S"]))
    return Polynomial(tuple(terms))


def write(polynomial: Polynomial) -> Size:
    """The size of a polynomial; equal polynomials give equal sizes."""
    sums: dict[tuple[int, int], int] = {}
    for factor, i, j in polynomial.terms:
        sums[i, j] = sums.get((i, j), 0) + factor
    parts = []
    for (i, j), factor in sorted(sums.items(), reverse=True):
        if factor:
            names = ["B"] * i + ["S"] * j
            parts.append("*".join(([str(factor)] if factor != 1 or not names else []) + names))
    if all(part.lstrip("-").isdecimal() for part in parts):
        return int(parts[0]) if parts else 0
    return "+".join(parts).replace("+-", "-")


def product(sizes: Iterable[Size]) -> Size:
    """The product of sizes."""
    terms: tuple[tuple[int, int, int], ...] = ((1, 0, 0),)
    for size in sizes:
        terms = tuple((a * b, i + k, j + m) for a, i, j in terms for b, k, m in read(size).terms)
    return write(Polynomial(terms))


def divide(size: Size, by: int) -> Size | None:
    """A size divided into equal parts; None if a factor does not divide."""
    terms = read(size).terms
    if any(factor % by for factor, _, _ in terms):
        return None
    return write(Polynomial(tuple((factor // by, i, j) for factor, i, j in terms)))


def lengthen(size: Size, times: int) -> Size:
    """A size for a sequence that is ``times`` times as long.

    >>> lengthen("8*B*S+1", 4)
    '32*B*S+1'
    """
    return write(Polynomial(tuple((factor * times**j, i, j) for factor, i, j in read(size).terms)))


@dataclasses.dataclass(frozen=True)
class Witnesses:
    """Two primes used as batch and sequence in a trace: the prime factors of a size show how it depends on them."""

    batch: int
    sequence: int

    def describe(self, number: int) -> Size:
        """The size in B and S that a number of the trace represents; the number itself if it is constant."""
        exact_size = self._product(number)
        if exact_size is not None or number < self.sequence - _NEAREST:
            return number if exact_size is None else exact_size
        for distance in range(1, _NEAREST + 1):
            for offset in (distance, -distance):
                product = self._product(number - offset)
                if product is not None and number - offset <= 4 * self.sequence:
                    return f"{product}{offset:+d}"
        return number

    def describe_padded(self, number: int) -> Size:
        """`describe` for memory with padded rows: a product of B, S and a number slightly above S."""
        exact_size, quotient = self._product(number), number // (self.batch * self.sequence)
        if exact_size is not None and number == quotient * self.batch * self.sequence:
            for padding_rows in range(1, _NEAREST + 1):
                rows = self.sequence + padding_rows
                if quotient % rows == 0:
                    return product([quotient // rows, "B", "S", f"S+{padding_rows}"])
        return self.describe(number)

    def _product(self, number: int) -> str | None:
        names = []
        for name, prime in (("B", self.batch), ("S", self.sequence)):
            while number and number % prime == 0:
                number //= prime
                names.append(name)
        if not names:
            return None
        return "*".join(([str(number)] if number != 1 else []) + names)


# Primes, so that no size of a model is a multiple by chance; sequences are longer than usual sliding windows, and one
# short of a multiple of 64, so that what kernels pad is the same for each of them.
CANDIDATES = ((1013, 5503), (1019, 6079), (1021, 6143), (1031, 6271), (1033, 6911), (1039, 7039))


def choose_witnesses(constants: Iterable[int]) -> tuple[Witnesses, Witnesses]:
    """The first two pairs of primes that divide none of the model's sizes: one to find sizes, one to verify them.

    Raises:
        ValueError: fewer than two pairs remain.
    """
    model_sizes = {constant for constant in constants if constant}
    related_sizes = {
        related for size in model_sizes for factor in (1, 2, 3, 4) for related in (size * factor, size // factor)
    }
    usable = [
        Witnesses(batch, sequence)
        for batch, sequence in CANDIDATES
        if all(constant % batch and constant % sequence for constant in model_sizes)
        and not any(
            abs(size - round(size / sequence) * sequence) <= _NEAREST for size in related_sizes if size > sequence // 2
        )
    ]
    if len(usable) < 2:
        raise ValueError(f"each of {CANDIDATES} divides a size of the model")
    return usable[0], usable[1]
