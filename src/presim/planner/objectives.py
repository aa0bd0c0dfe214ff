"""Objectives and constraints of a search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from presim.errors import InputError
from presim.planner.trials.trial import Figures, Trial
from presim.units import GIB, seconds, three_digits

_HOUR_S, _DAY_S = 3600.0, 86400.0


@dataclasses.dataclass(frozen=True)
class Work:
    """Total training tokens and GPU prices."""

    tokens: float | None = None
    price_per_gpu_hour: float | Mapping[str, float] | None = None  # one price, or prices by GPU id

    def days(self, figures: Figures) -> float | None:
        """Days to train on all tokens; None if unknown."""
        rate = tokens_per_s(figures)
        return self.tokens / rate / _DAY_S if self.tokens and rate else None

    def gpu_hours(self, figures: Figures) -> float | None:
        """GPU-hours to train on all tokens; None if unknown."""
        days = self.days(figures)
        return None if days is None else days * 24 * figures.gpus

    def money(self, figures: Figures) -> float | None:
        """Cost of these GPU-hours; None if unknown."""
        days = self.days(figures)
        parts = [
            (self.price(gpu), count) for gpu, count in (figures.gpus_by_kind or {figures.gpu: figures.gpus}).items()
        ]
        if days is None or any(price is None for price, _ in parts):
            return None
        return days * 24 * sum(price * count for price, count in parts if price is not None)

    def price(self, gpu: str) -> float | None:
        """Price of one GPU-hour; None if not given."""
        prices = self.price_per_gpu_hour
        return prices.get(gpu) if isinstance(prices, Mapping) else prices


def read_prices(text: str) -> float | dict[str, float]:
    """Parse `--price-per-gpu-hour`: one price, or prices by GPU.

    >>> read_prices("2.5"), read_prices("h100-sxm=2.5,b200=5")
    (2.5, {'h100-sxm': 2.5, 'b200': 5.0})

    Raises:
        InputError: the text is neither, or a GPU is unknown.
    """
    if "=" not in text:
        return _amount(text, text)
    from presim.hardware import catalogue

    prices: dict[str, float] = {}
    for part in text.split(","):
        name, equals, amount = part.partition("=")
        if not equals or not name.strip():
            raise InputError(f"{part.strip()!r} is not a GPU with its price; write e.g. h100-sxm=2.5,b200=5")
        prices[catalogue.gpu(name.strip()).id] = _amount(amount, part)
    return prices


def _amount(text: str, option: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise InputError(
            f"{option.strip()!r} is not a price per GPU hour: give a number above 0, e.g. 2.5 or h100-sxm=2.5"
        )
    return amount


def tokens_per_s(figures: Figures) -> float | None:
    """Tokens per second of the whole job."""
    return figures.tokens_per_step / figures.step_time_s if figures.tokens_per_step else None


def joules_per_token(figures: Figures) -> float | None:
    """Energy per token of the whole job, assuming every GPU draws the reported GPU's power."""
    if figures.joules is None or not figures.tokens_per_step:
        return None
    return figures.joules * figures.gpus / figures.tokens_per_step


def tokens_per_s_per_gpu(figures: Figures) -> float | None:
    """Tokens per second per GPU."""
    rate = tokens_per_s(figures)
    return None if rate is None else rate / figures.gpus


@dataclasses.dataclass(frozen=True)
class Objective:
    """A figure to minimize or maximize."""

    name: str
    larger: bool
    of: Callable[[Figures, Work], float | None]
    format: Callable[[float], str]
    needs: tuple[str, ...] = ()  # fields of `Work` that must be set

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """Direction in Optuna's terms."""
        return "maximize" if self.larger else "minimize"

    def loss(self, figures: Figures, work: Work) -> float:
        """The value as a loss (smaller is better); infinite if unknown."""
        value = self.of(figures, work)
        return float("inf") if value is None else -value if self.larger else value


OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("step_time", False, lambda figures, work: figures.step_time_s, seconds),
        Objective(
            "tokens_per_s_per_gpu",
            True,
            lambda figures, work: tokens_per_s_per_gpu(figures),
            lambda value: f"{value:,.0f} tokens/s/GPU",
        ),
        Objective(
            "tokens_per_s", True, lambda figures, work: tokens_per_s(figures), lambda value: f"{value:,.0f} tokens/s"
        ),
        Objective(
            "gpu_hours",
            False,
            lambda figures, work: work.gpu_hours(figures),
            lambda value: f"{value:,.0f} GPU-hours",
            ("tokens",),
        ),
        Objective(
            "money",
            False,
            lambda figures, work: work.money(figures),
            lambda value: f"{value:,.0f}",
            ("tokens", "price_per_gpu_hour"),
        ),
        Objective(
            "days", False, lambda figures, work: work.days(figures), lambda value: f"{value:.1f} days", ("tokens",)
        ),
        Objective("gpus", False, lambda figures, work: float(figures.gpus), lambda value: f"{value:,.0f} GPUs"),
        Objective(
            "energy", False, lambda figures, work: joules_per_token(figures), lambda value: f"{value:.3g} J/token"
        ),
        Objective(
            "memory_headroom",
            True,
            lambda figures, work: float(figures.headroom_bytes),
            lambda value: f"{three_digits(value / GIB)} GiB spare",
        ),
    )
}


def objectives_of(names: Sequence[str], work: Work) -> tuple[Objective, ...]:
    """Look up objectives by name.

    Raises:
        InputError: a name is unknown, or a field of `Work` that it needs is not set.
    """
    objectives = []
    for name in dict.fromkeys(name.strip().replace("-", "_") for name in names):
        if name not in OBJECTIVES:
            raise InputError(f"no objective {name!r}; use one of {', '.join(OBJECTIVES)}")
        objective = OBJECTIVES[name]
        for need in objective.needs:
            if not getattr(work, need):
                raise InputError(
                    f"the objective {name} needs --{need.replace('_', '-')}; add it, or use another objective"
                )
        objectives.append(objective)
    return tuple(objectives)


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Limits that a plan must meet, besides fitting its GPU."""

    spare_bytes: int = 0
    most_gpus: int | None = None
    most_days: float | None = None

    def broken(self, trial: Trial, work: Work) -> str:
        """The constraint that a priced trial breaks, with numbers; empty if none."""
        figures = trial.figures
        if figures is None:
            return ""
        if figures.fits is False or figures.headroom_bytes < self.spare_bytes:
            requirement = (
                f", {three_digits(self.spare_bytes / GIB)} GiB to spare are required" if self.spare_bytes else ""
            )
            spare = figures.headroom_bytes / GIB
            return f"memory: {three_digits(abs(spare))} GiB {'too much' if spare < 0 else 'spare'}{requirement}"
        if self.most_gpus is not None and figures.gpus > self.most_gpus:
            return f"GPUs: {figures.gpus} of at most {self.most_gpus}"
        days = work.days(figures)
        if self.most_days is not None and days is not None and days > self.most_days:
            return f"days: {days:.1f} of at most {self.most_days:g}"
        return ""
