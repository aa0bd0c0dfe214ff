"""Work beyond a budget is refused with its estimate and the count that fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.system.budgets import Budget, Estimate, budget_of, check, duration, size

GIB = 1 << 30


def test_a_refusal_has_the_estimate_the_budget_and_what_fits() -> None:
    with pytest.raises(InputError) as refused:
        check(Estimate(100_000_000, "requests", 2400.0, 12.0 * GIB), Budget(600.0, 8.0 * GIB), "--budget 1h")
    assert str(refused.value) == (
        "100,000,000 requests would take about 40 minutes and 12 GiB, more than the budget of 10 minutes and 8 GiB: "
        "use at most 25,000,000, or --budget 1h"
    )


def test_where_not_even_one_fits_another_number_is_to_be_lowered() -> None:
    with pytest.raises(InputError, match=r"lower it and what it is multiplied with$"):
        check(Estimate(2, "draws", 1e9))


@given(st.integers(1, 10**12), st.floats(1e-9, 1e3), st.floats(0, 1e9))
def test_what_a_refusal_proposes_fits(count: int, seconds_each: float, bytes_each: float) -> None:
    estimate = Estimate(count, "things", count * seconds_each, count * bytes_each)
    try:
        check(estimate)
    except InputError as refused:
        _, proposed, words = str(refused).partition("use at most ")
        if proposed:
            fits = int(words.replace(",", ""))
            check(Estimate(fits, "things", fits * seconds_each, fits * bytes_each))


@pytest.mark.parametrize(
    ("text", "seconds", "memory"),
    [("2h", 7200, 8), ("32GiB", 600, 32), ("90s, 0.5GiB", 90, 0.5), ("1d,1TiB", 86_400, 1024)],
)
def test_a_budget_is_a_time_a_memory_or_both(text: str, seconds: float, memory: float) -> None:
    assert budget_of(text) == Budget(seconds, memory * GIB)


@pytest.mark.parametrize(
    "text", ["", "2", "h", "nanh", "-1h", "0s", "1e9h", "9999999h", "2 weeks", "1h,,2h", "9" * 500 + "h"]
)
def test_a_text_that_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--budget is a time, memory or both, such as 2h, 32GiB or 2h,32GiB, not "):
        budget_of(text)


def test_figures_are_rough() -> None:
    assert [duration(value) for value in (5, 119, 2400, 7300, 2e5, 1e9)] == [
        "5 seconds", "119 seconds", "40 minutes", "2 hours", "2 days", "32 years",
    ]  # fmt: skip
    assert [size(value * GIB) for value in (0.5, 12, 4096)] == ["512 MiB", "12 GiB", "4 TiB"]
