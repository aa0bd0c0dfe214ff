"""What is asked of a deployment beside its SLO: a rate, or limits on GPUs, price and power; and how plans rank by it.

A deployment is made of units, each an engine or a set of prefill and decode engines. Each is judged alone: a router
before several makes the arrivals at one of them more even, so that they serve at least so many times as much.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.hardware import catalogue
from presim.hardware.power import shares

if TYPE_CHECKING:
    from presim.serving.deployments.deployment_point import DeploymentPoint

_HOUR_S = 3600.0
_EVERY = ""  # the price of GPUs that have none of their own


@dataclasses.dataclass(frozen=True)
class Demand:
    """Limits; None: not asked."""

    rate: float | None = None  # requests/s to serve with the least money, or the fewest GPUs
    total_gpus: int | None = None
    hourly: float | None = None  # money an hour
    power_w: float | None = None
    cost: float | None = None  # money for a million output tokens
    prices: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of a GPU hour, by GPU

    def check(self, gpus: tuple[str, ...]) -> None:
        """Raise InputError where a limit cannot be applied, or leaves no GPU."""
        unpriced = [gpu for gpu in gpus if self.price(gpu) is None]
        option = "--max-price" if self.hourly is not None else "--max-cost" if self.cost is not None else None
        if option is not None and unpriced:
            raise InputError(f"{option} needs what a GPU costs: say --price-per-gpu-hour {unpriced[0]}=PRICE")
        unknown = [gpu for gpu in self.prices if gpu not in (_EVERY, *gpus)]
        if unknown:
            raise InputError(f"--price-per-gpu-hour is for {unknown[0]}, which no --gpu names; correct it")
        if self.prices and unpriced:
            raise InputError(
                f"--price-per-gpu-hour has no price of {unpriced[0]}, so that deployments cannot be compared: say "
                f"{unpriced[0]}=PRICE, too, or leave it out"
            )
        if all(self._most_gpus(gpu) == 0 for gpu in gpus):
            raise InputError(f"{self._limits()} leave no GPU: {'; '.join(map(self._of_one, gpus))}; allow more")

    def price(self, gpu: str) -> float | None:
        """Money for an hour of a GPU."""
        return self.prices.get(gpu, self.prices.get(_EVERY))

    def most_units(self, point: DeploymentPoint) -> int | None:
        """How often the limits allow a deployment; None: as often as wanted.

        Raises:
            InputError: a limit of power, and a GPU whose power is not known.
        """
        hour, watts = self.hour(point), self.watts(point)
        allowed: list[float] = [] if self.total_gpus is None else [self.total_gpus / point.gpus]
        allowed += [self.hourly / hour] if self.hourly is not None and hour else []
        if self.power_w is not None:
            if watts is None:
                raise _without_power(" and ".join(point.gpus_by_id))
            allowed.append(self.power_w / watts)
        return math.floor(min(allowed) + 1e-9) if allowed else None

    def units(self, point: DeploymentPoint, unit_rate: float) -> int:
        """How many units are deployed of which each serves ``unit_rate`` requests/s; 0: the limits do not allow it."""
        unit_limit = self.most_units(point)
        if self.rate is None:
            return 1 if unit_limit is None else unit_limit
        needed_units = math.ceil(self.rate / unit_rate - 1e-9) if unit_rate > 0 else 0
        return needed_units if unit_limit is None or needed_units <= unit_limit else 0

    def worth(self, point: DeploymentPoint, per_gpu: float, output: float) -> float:
        """What plans are ranked by: tokens/s for each GPU, for the money of the load, or of all that is allowed."""
        tokens_per_s = per_gpu * point.gpus
        units = self.units(point, tokens_per_s / output) if per_gpu > 0 else 0
        if not units:
            return 0.0
        if self.rate is not None:
            return self.rate * output / (units * self._expense(point))
        if self.most_units(point) is not None:
            return tokens_per_s * units
        return tokens_per_s / self._expense(point)

    def least_per_gpu(self, point: DeploymentPoint, worth: float, output: float) -> float:
        """Tokens/s for each GPU from which on a plan is worth more, and costs no more than allowed; 0: any."""
        hour, expense = self.hour(point), self._expense(point)
        allowed = hour / point.gpus * 1e6 / _HOUR_S / self.cost if self.cost is not None and hour else 0.0
        unit_limit = self.most_units(point)
        if self.rate is not None:
            units = math.floor(self.rate * output / worth / expense) if worth else unit_limit
            if units is not None and unit_limit is not None:
                units = min(units, unit_limit)
            if units == 0:
                return math.inf
            return max(allowed, 0.0 if units is None else self.rate * output / (units * point.gpus))
        if unit_limit is not None:
            return max(allowed, worth / (point.gpus * unit_limit) if unit_limit else math.inf)
        return max(allowed, worth * expense / point.gpus)

    def hour(self, point: DeploymentPoint) -> float | None:
        """Money for an hour of a deployment; None: a GPU has no price."""
        return _total(self.price, point)

    def watts(self, point: DeploymentPoint) -> float | None:
        """Power to provide for a deployment: its GPUs' limits, and their part of the rest of the node."""
        return _total(_watts, point)

    def per_million(self, point: DeploymentPoint, per_gpu: float) -> float | None:
        """Money for a million output tokens, at so many tokens/s for each GPU."""
        hour = self.hour(point)
        return hour / (per_gpu * point.gpus) / _HOUR_S * 1e6 if hour is not None and per_gpu else None

    def _expense(self, point: DeploymentPoint) -> float:
        """Money for an hour, or the number of GPUs where they have no prices."""
        return self.hour(point) or float(point.gpus)

    def relaxed(self) -> Demand:
        """Without the rate and the cost, which a deployment may not reach."""
        return dataclasses.replace(self, rate=None, cost=None)

    def _most_gpus(self, gpu: str) -> int | None:
        """GPUs of a kind that the limits allow."""
        gpu_limits: list[float] = [] if self.total_gpus is None else [self.total_gpus]
        price, watts = self.price(gpu), _watts(gpu)
        gpu_limits += [self.hourly / price] if self.hourly is not None and price else []
        if self.power_w is not None:
            if watts is None:
                raise _without_power(gpu)
            gpu_limits.append(self.power_w / watts)
        return math.floor(min(gpu_limits) + 1e-9) if gpu_limits else None

    def _limits(self) -> str:
        named = {"--total-gpus": self.total_gpus, "--max-price": self.hourly, "--max-power": self.power_w}
        return " and ".join(f"{name} {value:g}" for name, value in named.items() if value is not None)

    def _of_one(self, gpu: str) -> str:
        price, watts = self.price(gpu), _watts(gpu)
        parts = [f"{price:g} an hour"] if price is not None and self.hourly is not None else []
        parts += [f"{watts:,.0f} W with its part of the node"] if watts is not None and self.power_w is not None else []
        return f"a {gpu} takes {' and '.join(parts)}"


def _watts(gpu: str) -> float | None:
    """Power to provide for a GPU, W; None: its limit is not known."""
    limit = catalogue.gpu(gpu).power_w
    return limit * (1 + shares()["node"].share) if limit else None


def _total(amount: Callable[[str], float | None], point: DeploymentPoint) -> float | None:
    """The sum of an amount over the GPUs of a deployment; None: that of a GPU is not known."""
    total = 0.0
    for gpu, count in point.gpus_by_id.items():
        value = amount(gpu)
        if value is None:
            return None
        total += value * count
    return total


def _without_power(gpu: str) -> InputError:
    return InputError(f"--max-power needs the power of {gpu}, which is not known; leave one of them out")


def price_of(word: str) -> tuple[str, float]:
    """Parse ``GPU=PRICE``, or a price of every GPU.

    Raises:
        InputError: it is neither.
    """
    gpu, has_gpu, amount = word.rpartition("=")
    try:
        price = float(amount)
    except ValueError:
        price = 0.0
    if not 0 < price < 1e9 or (has_gpu and not gpu):
        raise InputError(f"--price-per-gpu-hour is PRICE or GPU=PRICE, not {word[:60]!r}; e.g. h100-sxm=2.5")
    return gpu or _EVERY, price


def watts_of(word: str) -> float:
    """Parse a power: ``900kW``, ``1MW``, or watts.

    Raises:
        InputError: it is none.
    """
    units = {"MW": 1e6, "kW": 1e3, "W": 1.0}
    unit = next((unit for unit in units if word.endswith(unit)), "")
    try:
        power_w = float(word.removesuffix(unit)) * units.get(unit, 1.0)
    except ValueError:
        power_w = 0.0
    if not 0 < power_w < 1e12:
        raise InputError(f"--max-power is a power such as 40kW or 1MW, not {word[:60]!r}; correct it")
    return power_w
