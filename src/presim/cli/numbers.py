"""Option types of numbers: finite, and within a `presim.units.quantities.Quantity`, which a refusal names."""

from __future__ import annotations

import click

from presim.units.quantities import Quantity

_LONGEST = 400  # characters of a number; Python reads integers of up to 4,300 digits


class Whole(click.IntRange):
    """A whole number."""

    name = "n"

    def __init__(self, quantity: Quantity) -> None:
        super().__init__(int(quantity.least), int(quantity.greatest))
        self.quantity = quantity

    def _describe_range(self) -> str:  # click's name; it stands in the help
        return self.quantity.bounds

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number that a word means, as ``4096``."""
        try:
            number = int(_checked(value)) if isinstance(value, str) else value
        except ValueError:
            self.fail(f"{_shown(value)} is not a whole number; {self.quantity} is expected", param, ctx)
        if problem := self.quantity.problem(number):
            self.fail(problem, param, ctx)
        assert isinstance(number, int)
        return number


class LengthOrAuto(Whole):
    """A number of tokens, or ``auto``, which is -1 as in vLLM."""

    name = "n|auto"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number that a word means; -1 for ``auto``."""
        if value in ("auto", "-1", -1):
            return -1
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(f"{error.message}, or auto", param, ctx)


class Real(click.FloatRange):
    """A number that may have a fraction."""

    name = "x"

    def __init__(self, quantity: Quantity) -> None:
        super().__init__(quantity.least, quantity.greatest, min_open=quantity.is_open)
        self.quantity = quantity

    def _describe_range(self) -> str:
        return self.quantity.bounds

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that a word means, as ``0.5`` or ``15e12``."""
        try:
            number = float(_checked(value)) if isinstance(value, str) else value
        except ValueError:
            self.fail(f"{_shown(value)} is not a number; {self.quantity} is expected", param, ctx)
        if problem := self.quantity.problem(number):
            self.fail(problem, param, ctx)
        assert isinstance(number, int | float)
        return float(number)


def number(quantity: Quantity) -> Whole | Real:
    """The option type of a kind of number."""
    return Whole(quantity) if quantity.is_whole else Real(quantity)


def _checked(word: str) -> str:
    if len(word) > _LONGEST or "_" in word:
        raise ValueError(word)
    return word


def _shown(value: object) -> str:
    text = str(value)
    return repr(text) if len(text) <= 24 else f"{text[:12]!r}… ({len(text):,} characters)"
