"""The answer of `presim deploy` in its first lines: the best, what it costs, what follows, and how sure that is."""

from __future__ import annotations

from typing import Any

from presim.units import plain


def first_lines(answer: dict[str, Any]) -> list[str]:
    """The answer in a sentence, and the reasons for it."""
    best, nearest, statistics = answer["best"], answer["nearest"], answer.get("slo_statistics", {})
    if best is not None and "request_rate" in best:
        return [_best(answer, statistics), *_reasons(answer, statistics)]
    if answer.get("shortfall"):
        return [answer["shortfall"]]
    if nearest is not None and "reason" not in nearest and "request_rate" in nearest:
        return [
            f"None meets the SLO; the nearest: {nearest['deployment']}, with {latencies(nearest, statistics)} at "
            f"{nearest['request_rate']:.2g} requests/s"
        ]
    return [f"None meets the SLO; the nearest: {nearest['deployment']}"] if nearest is not None else []


def ordered(statistics: dict[str, str]) -> dict[str, str]:
    """In the order of a request's life; files sort their keys."""
    return {name: statistics[name] for name in ("ttft", "tpot", "e2el") if name in statistics}


def latencies(entry: dict[str, Any], statistics: dict[str, str]) -> str:
    """The latencies that the SLO limits; the means of TTFT and TPOT where it does not limit them."""
    levels = {name: statistics.get(name, "mean") for name in ("ttft", "tpot")} | ordered(statistics)
    return ", ".join(
        f"{level} {name.upper()} {plain(entry[f'{level}_{name}_ms'], 4)} ms" for name, level in levels.items()
    )


def _best(answer: dict[str, Any], statistics: dict[str, str]) -> str:
    best = answer["best"]
    sentence = (
        f"Best: {best['deployment']}, {best['gpus']} GPUs; serves {plain(best['request_rate'])} requests/s, "
        f"{best['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU, with {latencies(best, statistics)}"
    )
    costs = _costs(answer.get("costs"))
    following = answer.get("next_best")
    if following is not None:
        share = following["tokens_per_s_per_gpu"] / best["tokens_per_s_per_gpu"]
        amount = f"{abs(1 - share):.0%} {'less' if share <= 1 else 'more'} per GPU"
        costs += f"; next best {following['deployment']}, {following['gpus']} GPUs: {amount}"
    return sentence + costs


def _costs(costs: dict[str, float | None] | None) -> str:
    hour, million = (costs.get("hour"), costs.get("million_output_tokens")) if costs else (None, None)
    if hour is None or million is None:
        return ""
    return f"; costs {plain(hour)} an hour, {plain(million)} per million output tokens"


def _reasons(answer: dict[str, Any], statistics: dict[str, str]) -> list[str]:
    if "rate_range" not in answer:  # a saved answer of an earlier version
        return []
    lines = []
    if answer["losses"]:
        losses = "; ".join(f"{entry['plan']} {entry['share']:.0%}" for entry in answer["losses"])
        lines.append(f"Others serve less per GPU: {losses}.")
    lines.append(_sureness(answer, statistics))
    if answer["ranges_overlap"]:
        lines.append(
            "If its steps take 10 % more time and those of the next best 10 % less, that serves more: measure both."
        )
    if answer["rate_asked"] is not None:
        lines.append(_headroom(answer))
    return lines


def _sureness(answer: dict[str, Any], statistics: dict[str, str]) -> str:
    slow, fast = answer["rate_range"]
    ranges = answer["ranges"]
    shown = {name: level for name, level in ordered(statistics).items() if f"{level}_{name}_ms" in ranges}
    draws = [
        f"{level} {name.upper()} is {' to '.join(plain(bound, 4) for bound in ranges[f'{level}_{name}_ms'])} ms"
        for name, level in shown.items()
    ]
    drawn = f"Over {answer['draws']} draws of the load {' and '.join(draws)}. " if draws else ""
    serves = f"{plain(slow)} to {plain(fast)} requests/s" if slow else f"at most {plain(fast)} requests/s, or none"
    doubt = f"If steps take 10 % more or less time, it serves {serves}. "
    return f"{drawn}{doubt}Its queues grow without end from {plain(answer['queue_rate'])} requests/s on."


def _headroom(answer: dict[str, Any]) -> str:
    best, units, rate = answer["best"], answer["units"], answer["rate_asked"]
    unit_gpus = best["gpus"] // units
    spared_units = units + answer["spare_units"]
    unit_name = "engine" if "P" not in best["deployment"].partition(" x ")[0] else "group of engines"
    return (
        f"{plain(rate)} requests/s are {rate / best['request_rate']:.0%} of that; with one {unit_name} more, "
        f"{spared_units * unit_gpus} GPUs, one may fail."
    )
