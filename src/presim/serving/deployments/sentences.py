"""The answer of `presim deploy` in its first lines: the best, what it costs, what follows, and how sure that is."""

from __future__ import annotations

from presim.result.deployments import (
    Confirmation,
    DeploymentCosts,
    DeploymentLimits,
    DeployResult,
    SimulatedDeployment,
)
from presim.units import plain


def first_lines(answer: DeployResult) -> list[str]:
    """The answer in a sentence, and the reasons for it."""
    best, nearest, statistics = answer.best, answer.nearest, answer.slo_statistics
    if best is not None and best.request_rate is not None:
        return [_best(best, answer), *_reasons(best, answer)]
    if answer.shortfall:
        return [answer.shortfall]
    if nearest is not None and nearest.reason is None and nearest.request_rate is not None:
        return [
            f"None meets the SLO; the nearest: {nearest.deployment}, with {latencies(nearest, statistics)} at "
            f"{nearest.request_rate:.2g} requests/s"
        ]
    return [f"None meets the SLO; the nearest: {nearest.deployment}"] if nearest is not None else []


def ordered(statistics: dict[str, str]) -> dict[str, str]:
    """In the order of a request's life; files sort their keys."""
    return {name: statistics[name] for name in ("ttft", "tpot", "e2el") if name in statistics}


def latencies(entry: SimulatedDeployment, statistics: dict[str, str]) -> str:
    """The latencies that the SLO limits; the means of TTFT and TPOT where it does not limit them."""
    levels = {name: statistics.get(name, "mean") for name in ("ttft", "tpot")} | ordered(statistics)
    return ", ".join(
        f"{level} {name.upper()} {plain(entry.figures[f'{level}_{name}_ms'], 4)} ms" for name, level in levels.items()
    )


def _best(best: SimulatedDeployment, answer: DeployResult) -> str:
    most_gpus = answer.limits.total_gpus or best.gpus
    gpus = _gpus(best.gpus) if best.gpus == most_gpus else f"{best.gpus} of {_gpus(most_gpus)}"
    sentence = (
        f"Best: {best.deployment}, {gpus}; serves {plain(best.request_rate or 0.0)} requests/s, "
        f"{best.tokens_per_s_per_gpu or 0.0:,.0f} tokens/s/GPU, with {latencies(best, answer.slo_statistics)}"
    )
    confirmation = answer.confirmation
    if confirmation is None:
        return sentence
    sentence += _costs(confirmation.costs)
    following = confirmation.next_best
    if following is not None and following.request_rate and best.request_rate:
        share = _share(following, best, confirmation, answer.limits)
        amount = f"{abs(1 - share):.0%} {'less' if share <= 1 else 'more'} {_basis(answer.limits)}"
        sentence += f"; next best {following.deployment}, {_gpus(following.gpus)}: {amount}"
    return sentence


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _is_limited(limits: DeploymentLimits) -> bool:
    """Whether the most that limits allow is sought, and not the most for each GPU or for the money."""
    sizes = limits.total_gpus, limits.price_per_hour, limits.watts
    return limits.request_rate is None and any(size is not None for size in sizes)


def _basis(limits: DeploymentLimits) -> str:
    """By what deployments are compared."""
    if _is_limited(limits):
        return "within the limits"
    return "for the money" if limits.price_per_gpu_hour else "per GPU"


def _share(
    following: SimulatedDeployment, best: SimulatedDeployment, confirmation: Confirmation, limits: DeploymentLimits
) -> float:
    """What the next best serves, as a share of the best: in all, for the money, or per GPU."""
    following_rate, best_rate = (limits.request_rate or entry.request_rate or 0.0 for entry in (following, best))
    if _is_limited(limits):
        return following_rate / best_rate
    costs = confirmation.next_costs
    if costs is not None and costs.hour and confirmation.costs.hour:
        return following_rate / costs.hour * confirmation.costs.hour / best_rate
    return following_rate / following.gpus * best.gpus / best_rate


def _costs(costs: DeploymentCosts | None) -> str:
    if costs is None or costs.hour is None or costs.million_output_tokens is None:
        return ""
    return f"; costs {plain(costs.hour)} an hour, {plain(costs.million_output_tokens)} per million output tokens"


def _reasons(best: SimulatedDeployment, answer: DeployResult) -> list[str]:
    confirmation = answer.confirmation
    if confirmation is None:  # a saved answer of an earlier version
        return []
    lines = []
    if confirmation.losses:
        losses = "; ".join(f"{loss.plan} {loss.share:.0%}" for loss in confirmation.losses)
        lines.append(f"Others serve less {_basis(answer.limits)}: {losses}.")
    lines.append(_sureness(confirmation, answer.slo_statistics))
    if confirmation.ranges_overlap:
        lines.append(
            "If its steps take 10 % more time and those of the next best 10 % less, that serves more: measure both."
        )
    if answer.limits.request_rate is not None:
        lines.append(_headroom(best, confirmation, answer.limits.request_rate))
    return lines


def _sureness(confirmation: Confirmation, statistics: dict[str, str]) -> str:
    slow, fast = confirmation.rate_range
    draws = []
    for name, level in ordered(statistics).items():
        bounds = confirmation.ranges.get(f"{level}_{name}_ms")
        if bounds is not None:
            low, high = ("unbounded" if bound is None else plain(bound, 4) for bound in bounds)
            draws.append(f"{level} {name.upper()} is {low} to {high} ms")
    drawn = f"Over {confirmation.draws} draws of the load {' and '.join(draws)}. " if draws else ""
    serves = f"{plain(slow)} to {plain(fast)} requests/s" if slow else f"at most {plain(fast)} requests/s, or none"
    doubt = f"If steps take 10 % more or less time, it serves {serves}. "
    return f"{drawn}{doubt}Its queues grow without end from {plain(confirmation.queue_rate)} requests/s on."


def _headroom(best: SimulatedDeployment, confirmation: Confirmation, rate: float) -> str:
    unit_gpus = best.gpus // confirmation.units
    spared_units = confirmation.units + confirmation.spare_units
    is_apart = "P" in best.deployment.partition(" x ")[0]
    unit_name = "group of engines" if is_apart else "engine"
    return (
        f"{plain(rate)} requests/s are {rate / (best.request_rate or rate):.0%} of that; with one {unit_name} more, "
        f"{_gpus(spared_units * unit_gpus)}, one may fail."
    )
