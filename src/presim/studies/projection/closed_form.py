"""Closed forms for checkpointing a job with random failures: Young's and Daly's intervals, and the expected time.

J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974). J. T. Daly, A higher order
estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006). Failures are a Poisson process; they may
also occur while a checkpoint is written or the job restarts. Times are in seconds.
"""

from __future__ import annotations

import math

_GOLDEN = (math.sqrt(5) - 1) / 2


def young_interval(checkpoint_s: float, mtbf_s: float) -> float:
    """Seconds of work between checkpoints, to first order.

    >>> round(young_interval(300, 24 * 3600) / 60)
    120
    """
    return math.sqrt(2 * checkpoint_s * mtbf_s)


def daly_interval(checkpoint_s: float, mtbf_s: float) -> float:
    """Seconds of work between checkpoints, Daly's perturbation solution.

    The mean time between failures if a checkpoint takes at least twice that.

    >>> [round(daly_interval(300, hours * 3600) / 60, 1) for hours in (24, 6, 0.25)]
    [116.7, 56.7, 9.1]
    """
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = math.sqrt(checkpoint_s / (2 * mtbf_s))
    return young_interval(checkpoint_s, mtbf_s) * (1 + ratio / 3 + ratio * ratio / 9) - checkpoint_s


def expected_s(work_s: float, interval_s: float, checkpoint_s: float, restart_s: float, mtbf_s: float) -> float:
    """Expected wall-clock seconds for ``work_s`` seconds of work, Daly's equation 20; infinite if it never ends."""
    if math.isinf(mtbf_s):
        return work_s * (1 + checkpoint_s / interval_s)
    try:
        segment = math.exp(restart_s / mtbf_s) * math.expm1((interval_s + checkpoint_s) / mtbf_s)
    except OverflowError:
        return math.inf
    return mtbf_s * segment * work_s / interval_s


def best_interval(checkpoint_s: float, restart_s: float, mtbf_s: float) -> float:
    """The interval with the least expected time in seconds, to a thousandth."""
    guess = max(daly_interval(checkpoint_s, mtbf_s), 1e-3)
    low, high = guess / 10, guess * 10

    def cost(interval_s: float) -> float:
        return expected_s(1.0, interval_s, checkpoint_s, restart_s, mtbf_s)

    while high - low > 1e-3 * guess:  # golden-section search: the expected time has one minimum
        lower_s, upper_s = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        low, high = (low, upper_s) if cost(lower_s) <= cost(upper_s) else (lower_s, high)
    return (low + high) / 2
