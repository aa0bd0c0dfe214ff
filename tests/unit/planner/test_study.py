"""What trials come to: ranking, Pareto front, what is undecided, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.planner.answer.search_table import csv_table
from presim.planner.objectives import OBJECTIVES, Constraints, Work, objectives_of, read_prices
from presim.planner.of_command import request_for_command
from presim.planner.run_search import answer
from presim.planner.search_options import SearchOptions
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.study import decode, encode, front_of, overlapping, ranked
from presim.planner.trials.trial import Trial
from support.searching import GIB, figures

STEP = OBJECTIVES["step_time"]
NONE = Constraints()


def trial(number: int, step_time_s: float = 1.0, **more: float) -> Trial:
    return Trial(number=number, point={"tensor": 1 << number}, fate="priced", figures=figures(step_time_s, **more))


def request(points: int = 3, **more: object) -> SearchRequest:
    space = Space({"tensor": tuple(1 << number for number in range(points))}, {"sequence": 4096})
    return SearchRequest(subject="model", space=space, objectives=[STEP], **more)  # type: ignore[arg-type]


def test_what_fits_is_ranked_by_the_objective_and_ties_by_the_memory_to_spare() -> None:
    trials = [trial(0, 2.0), trial(1, 1.0), trial(2, 1.0, headroom_gib=20), trial(3, 0.1, headroom_gib=-1)]
    assert [one.number for one in ranked(trials, STEP, Work(), NONE)] == [2, 1, 0]


def test_constraints_are_said_with_their_numbers() -> None:
    work = Work(tokens=1e12)
    assert Constraints().broken(trial(0, headroom_gib=-3), work) == "memory: 3.00 GiB too much"
    kept = Constraints(spare_bytes=12 * GIB).broken(trial(0), work)
    assert kept == "memory: 10.0 GiB spare, 12.0 GiB to spare are required"
    assert Constraints(most_gpus=4).broken(trial(0), work) == "GPUs: 8 of at most 4"
    assert Constraints(most_days=1).broken(trial(0), work) == "days: 11.6 of at most 1"
    assert Constraints(spare_bytes=GIB, most_gpus=8, most_days=12).broken(trial(0), work) == ""


def test_gpu_hours_and_money_follow_from_tokens_and_price() -> None:
    work = Work(tokens=3.6e9, price_per_gpu_hour=2.0)  # an hour at 1e6 tokens/s
    assert OBJECTIVES["gpu_hours"].of(figures(), work) == pytest.approx(8)
    assert OBJECTIVES["money"].of(figures(), work) == pytest.approx(16)


def test_money_is_counted_with_the_price_of_each_gpu() -> None:
    work = Work(tokens=3.6e9, price_per_gpu_hour=read_prices("h100=2.5, b200=5"))
    assert OBJECTIVES["money"].of(figures(gpu="h100-sxm"), work) == pytest.approx(20)
    assert OBJECTIVES["money"].of(figures(gpu="b200"), work) == pytest.approx(40)
    assert OBJECTIVES["money"].of(figures(gpu="a100-80g-sxm"), work) is None
    mixed = figures(gpu="h100-sxm", gpus_by_kind={"h100-sxm": 2, "b200": 6})
    assert OBJECTIVES["money"].of(mixed, work) == pytest.approx(20 / 4 + 40 * 3 / 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cheap", "'cheap' is not a price per GPU hour: give a number above 0, e.g. 2.5 or h100-sxm=2.5"),
        ("b200=-1", "'b200=-1' is not a price per GPU hour: give a number above 0, e.g. 2.5 or h100-sxm=2.5"),
        ("b200=5,6", "'6' is not a GPU with its price; write e.g. h100-sxm=2.5,b200=5"),
    ],
)
def test_what_is_no_price_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        read_prices(text)
    assert str(error.value) == words


def test_a_gpu_that_is_searched_needs_a_price() -> None:
    settings = SearchOptions(vary=["gpu=h100-sxm,b200", "x=1,2"], price_per_gpu_hour={"h100-sxm": 2.5})
    with pytest.raises(InputError) as error:
        request_for_command(["train.py", "{x}"], settings, RunOptions())
    assert str(error.value) == "--price-per-gpu-hour has no price for b200, which is part of the search: add b200=…"


@given(some.lists(some.tuples(some.sampled_from([1.0, 2.0, 3.0]), some.sampled_from([1.0, 2.0, 3.0])), max_size=8))
def test_nobody_on_the_front_is_beaten_and_everybody_else_is(pairs: list[tuple[float, float]]) -> None:
    trials = [trial(number, step, headroom_gib=spare) for number, (step, spare) in enumerate(pairs)]
    front = front_of(trials, [STEP, OBJECTIVES["memory_headroom"]], Work())

    def beaten(mine: tuple[float, float]) -> bool:
        return any(pair != mine and pair[0] <= mine[0] and pair[1] >= mine[1] for pair in pairs)

    assert [one.number for one in front] == [number for number, pair in enumerate(pairs) if not beaten(pair)]


def test_plans_whose_intervals_overlap_are_undecided() -> None:
    trials = ranked([trial(0, 1.0), trial(1, 1.09), trial(2, 1.2)], STEP, Work(), NONE)
    assert [one.number for one in overlapping(trials, STEP, Work())] == [0, 1]


def test_without_a_feasible_plan_it_is_said_what_excludes_most_and_which_is_nearest() -> None:
    trials = [
        trial(0, headroom_gib=-2),
        trial(1, headroom_gib=-8),
        Trial(number=2, point={"tensor": 4}, fate="illegal", words="tensor = 4 does not divide 2 GPUs"),
    ]
    found = answer(request(), trials)
    assert found.best == []
    assert found.notes == [
        "no plan of 3 is feasible: 2 do not fit their GPU, 1 are illegal; the nearest lacks 2.00 GiB: tp=1. Use more "
        "GPUs, recompute, or a smaller micro-batch"
    ]


def test_where_all_plans_are_pruned_the_one_whose_bound_exceeds_the_memory_least_is_the_nearest() -> None:
    trials = [
        Trial(
            number=number,
            point={"tensor": degree},
            fate="pruned",
            rule="memory_bound",
            words=f"needs at least {80 + lacks} GiB of 80.0 GiB",
            lacks_bytes=lacks << 30,
        )
        for number, degree, lacks in ((0, 1, 60), (1, 4, 5), (2, 2, 20))
    ]
    assert answer(request(), trials).notes == [
        "no plan of 3 is feasible: 3 are pruned for memory; the nearest, tp=4, needs at least 85 GiB of 80.0 GiB. Use "
        "more GPUs, recompute, or a smaller micro-batch"
    ]


def test_an_answer_is_read_back_and_its_ledger_has_a_line_for_each_trial() -> None:
    found = answer(request(), [trial(0, 2.0), trial(1, 1.0), trial(2, 3.0)])
    assert decode(encode(found), "it") == found
    lines = csv_table(found).decode().splitlines()
    assert [line.split(",")[:4] for line in lines] == [
        ["rank", "number", "fate", "tensor"],
        ["1", "1", "priced", "2"],
        ["2", "0", "priced", "1"],
        ["3", "2", "priced", "4"],
    ]


def test_the_knob_that_explains_the_spread_is_named() -> None:
    found = answer(request(), [trial(0, 2.0), trial(1, 1.0), trial(2, 3.0)])
    assert found.importance == {"tensor": pytest.approx(1.0)}


def test_objectives_say_what_they_need() -> None:
    with pytest.raises(InputError, match="the objective money needs --tokens; add it, or use another objective"):
        objectives_of(["money"], Work())
    with pytest.raises(InputError, match="no objective 'speed'; use one of step_time,"):
        objectives_of(["speed"], Work())
