"""Energy and cost of a served load, per million tokens.

A GPU's power is a share of its power limit that depends on its activity (`presim.hardware.power`): steps with prefill
count as compute-bound, steps without have a share of their own (`decode`), and the rest of the time is idle. The power
of the rest of the node is added. A deployment is paid by the hour, busy or not.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from presim.hardware.power import shares
from presim.result.serving import Cost
from presim.serving.deployments.prediction import Prediction

_J_PER_KWH = 3.6e6


@dataclasses.dataclass(frozen=True)
class TokenPrices:
    """Prices in any currency; None: not given."""

    gpu_hour: float | None = None
    kwh: float | None = None


def cost_of(prediction: Prediction, prices: TokenPrices) -> Cost:
    """Energy with its range, and money if prices are given; all figures are None if no request was served."""
    figures, gpus = prediction.figures, prediction.gpus
    limit = prediction.deployment.power_w
    output, every = float(figures["output_throughput"]), float(figures["total_token_throughput"])

    def kwh(end: str, rate: float) -> float | None:
        if not limit or not rate:
            return None
        return _watts(prediction.inside, limit, end) * gpus / rate * 1e6 / _J_PER_KWH

    hours = gpus / output * 1e6 / 3600 if output else None
    energy = kwh("share", output)
    return Cost(
        watts=_watts(prediction.inside, limit, "share") * gpus if limit and output else None,
        kWh_per_million_output_tokens=energy,
        kWh_per_million_output_tokens_range=[kwh("low", output), kwh("high", output)],
        kWh_per_million_tokens=kwh("share", every),
        gpu_hours_per_million_output_tokens=hours,
        money_per_million_output_tokens=_product(hours, prices.gpu_hour),
        energy_money_per_million_output_tokens=_product(energy, prices.kwh),
        price_per_gpu_hour=prices.gpu_hour,
        price_per_kwh=prices.kwh,
    )


def _product(amount: float | None, price: float | None) -> float | None:
    return None if amount is None or price is None else amount * price


def _watts(inside: dict[str, Any], limit: float, end: str) -> float:
    """Mean power of a GPU and its part of the node, W, at one end of the range of shares."""
    busy = min(float(inside["device_busy"]), 1.0)
    prefill = busy * float(inside["time_in_steps_with_prefill"])
    spent = {"compute": prefill, "decode": busy - prefill, "idle": 1 - busy, "node": 1.0}
    return limit * sum(part * float(getattr(shares()[name], end)) for name, part in spent.items())


def sentence(cost: Cost) -> str:
    """The cost as one line; empty if unknown."""
    if cost.kWh_per_million_output_tokens is None:
        return ""
    low, high = cost.kWh_per_million_output_tokens_range
    parts = [f"{cost.gpu_hours_per_million_output_tokens:.3g} GPU hours"]
    parts.append(f"about {cost.kWh_per_million_output_tokens:.3g} kWh ({low:.3g} to {high:.3g})")
    money, energy = cost.money_per_million_output_tokens, cost.energy_money_per_million_output_tokens
    parts += [f"{money:.3g} for the GPUs"] if money is not None else []
    parts += [f"{energy:.3g} for the energy"] if energy is not None else []
    return f"A million output tokens: {', '.join(parts)}."
