"""What is asked beside the SLO: a rate, GPUs, money, power. A case is one line."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from presim.cli.deploy import command
from presim.errors import InputError
from presim.serving.deployments.capacity import Trial
from presim.serving.deployments.demand import Demand, price_of, watts_of
from presim.serving.deployments.deployment_answer import by_worth
from presim.serving.deployments.deployment_ranking import RankedDeployment
from presim.serving.deployments.sensitivity import Confirmed
from support.deployments import point

ASKED = "llama3-8b --gpu h100-sxm --input 300 --output 40 --slo tpot:20 --max-gpus 1 --weights bf16"
PRICED = {"": 2.0}
POINT = point(tp=2)


def asked(words: str, base: str = ASKED) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(command, [*shlex.split(f"{base} {words}"), "--json", "-"], standalone_mode=False)
    if done.exception:
        raise done.exception
    return int(done.return_value), json.loads(done.stdout)


def test_all_gpus_are_used() -> None:
    code, content = asked("--total-gpus 5 --price-per-gpu-hour 2")
    best, confirmation = content["best"], content["confirmation"]
    assert (code, best["gpus"], confirmation["units"], confirmation["costs"]["hour"]) == (0, 5, 5, 10)
    assert best["deployment"].startswith("5 x h100-sxm TP1")
    per_million = 2 / best["tokens_per_s_per_gpu"] / 3600 * 1e6
    assert confirmation["costs"]["million_output_tokens"] == pytest.approx(per_million)


def test_a_rate_has_the_fewest_gpus_and_one_that_may_fail() -> None:
    code, content = asked("--rate 200")
    best, units = content["best"], content["confirmation"]["units"]
    assert code == 0
    unit_rate = best["request_rate"] / units
    assert unit_rate * (units - 1) < 200 <= best["request_rate"]
    assert content["confirmation"]["spare_units"] == 1


def test_of_two_for_the_same_money_the_faster_is_best() -> None:
    """Six GPUs are needed either way: six engines that serve 9 requests/s each, or twice three that serve 36."""
    output = 200.0
    slow, fast = (
        Confirmed(RankedDeployment(deployed, "meets", Trial(rate, 1000, {}, True, 1.0, 0.9), output), {}, 99.0)
        for deployed, rate in ((point(), 9.0), (point(replicas=1, prefill=2), 36.0))
    )
    demand = Demand(rate=50.0, prices=PRICED)
    assert [demand.units(slow.outcome.point, 9.0), demand.units(fast.outcome.point, 36.0)] == [6, 2]
    assert by_worth([fast, slow], demand, output) == by_worth([slow, fast], demand, output) == [slow, fast]
    assert by_worth([slow, fast], Demand(rate=500.0, total_gpus=8), output) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--rate 500 --total-gpus 2",
            "No deployment serves 500 requests/s within the limits: 2 times 1 x h100-sxm TP1 ",
        ),
        (
            "--max-cost 0.001 --price-per-gpu-hour 2",
            "No deployment within the SLO costs 0.001 or less per million output tokens: the cheapest, 1 x h100-sxm ",
        ),
    ],
)
def test_what_the_limits_allow_is_said_where_it_is_too_little(words: str, sentence: str) -> None:
    code, content = asked(words)
    assert code == 4
    assert content["best"] is None
    assert content["shortfall"].startswith(sentence)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--max-price 1 --price-per-gpu-hour 2.5",
            "--max-price 1 leave no GPU: a h100-sxm takes 2.5 an hour; allow more",
        ),
        ("--max-price 5", "--max-price needs what a GPU costs: say --price-per-gpu-hour h100-sxm=PRICE"),
        (
            "--max-power 10W",
            r"--max-power 10 leave no GPU: a h100-sxm takes 1,\d+ W with its part of the node; allow more",
        ),
        ("--max-power lots", "--max-power is a power such as 40kW or 1MW, not 'lots'; correct it"),
        ("--price-per-gpu-hour b200=4", "--price-per-gpu-hour is for b200, which no --gpu names; correct it"),
        (
            "--gpu l40s --price-per-gpu-hour h100-sxm=2.5",
            "--price-per-gpu-hour has no price of l40s, so that deployments cannot be compared: say l40s=PRICE, too, "
            "or leave it out",
        ),
        ("--price-per-gpu-hour free", "--price-per-gpu-hour is PRICE or GPU=PRICE, not 'free'; e.g. h100-sxm=2.5"),
        (
            "--total-gpus 1 --max-gpus 2",
            "--max-gpus 2 for one deployment exceeds --total-gpus 1; leave out one of them",
        ),
        (
            "--trace t.csv --input 3",
            "--trace has the lengths of requests: leave out --input, --output and --shared-prefix",
        ),
    ],
)
def test_limits_that_leave_nothing_are_refused(words: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        asked(words, "llama3-8b --gpu h100-sxm")


def test_power_and_prices_are_read() -> None:
    assert [watts_of(word) for word in ("1MW", "40kW", "500W", "500")] == [1e6, 4e4, 500, 500]
    assert [price_of(word) for word in ("2.5", "h100-sxm=3")] == [("", 2.5), ("h100-sxm", 3.0)]


@given(
    st.sampled_from([None, 0.5, 20.0, 300.0]), st.sampled_from([None, 2, 8, 64]), st.sampled_from([{}, PRICED]),
    st.floats(0.5, 5000), st.floats(1.0, 3.0),
)  # fmt: skip
def test_more_tokens_are_never_worth_less(
    rate: float | None, total: int | None, prices: dict[str, float], per_gpu: float, factor: float
) -> None:
    """And a plan that reaches the least that is worth more is worth at least as much."""
    demand = Demand(rate=rate, total_gpus=total, prices=prices)
    worth = demand.worth(POINT, per_gpu, 100.0)
    if rate is None or demand.worth(POINT, per_gpu * factor, 100.0):
        assert demand.worth(POINT, per_gpu * factor, 100.0) >= worth * (1 - 1e-9)
    least = demand.least_per_gpu(POINT, worth, 100.0) if worth else 0.0
    if 0 < least < float("inf"):
        assert demand.worth(POINT, least * (1 + 1e-9), 100.0) >= worth * (1 - 1e-6)


def test_a_gpu_that_costs_less_wins_where_it_serves_enough() -> None:
    """Tokens for the money decide between GPUs once both have a price."""
    base = "llama3-8b --gpu h100-sxm --gpu l40s --input 300 --output 40 --slo tpot:60 --max-gpus 1 --weights bf16"
    dear, cheap = (
        asked(f"--price-per-gpu-hour h100-sxm={price} --price-per-gpu-hour l40s=0.5", base)[1]["best"]["deployment"]
        for price in (9, 0.5)
    )
    assert "l40s" in dear
    assert "h100-sxm" in cheap
