"""The page and the table show what the answer says, and the page fetches nothing."""

from __future__ import annotations

import io
import re

import msgspec
import pytest

from presim.planner.answer.search_page import render
from presim.planner.answer.search_table import write
from presim.planner.objectives import OBJECTIVES
from presim.planner.run_search import answer
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.study import Answer, CapturedRanking, CapturedTrial
from presim.planner.trials.trial import Trial
from support.searching import figures


@pytest.fixture
def found() -> Answer:
    space = Space({"tensor": (1, 2, 4, 8, 16), "nodes": (1,)}, {"sequence": 4096})
    request = SearchRequest(
        subject="<model>", space=space, objectives=[OBJECTIVES["step_time"], OBJECTIVES["memory_headroom"]]
    )
    one, two, four, eight, sixteen = space
    trials = [
        Trial(number=0, point=one, fate="priced", figures=figures(1.0, headroom_gib=2)),
        Trial(number=1, point=two, fate="priced", figures=figures(2.0, headroom_gib=30)),
        Trial(number=2, point=four, fate="priced", figures=figures(0.5, headroom_gib=-7)),
        Trial(number=3, point=eight, fate="pruned", rule="time_bound", words="takes at least 9 s"),
        Trial(number=4, point=sixteen, fate="illegal", words="16 does not divide 8"),
    ]
    return answer(request, trials)


def test_the_page_has_every_part_and_nothing_from_elsewhere(found: Answer) -> None:
    page = render(found)
    headings = re.findall(r"<h2>([^<]+?) <small>|<h2>([^<]+)</h2>", page)
    assert [first.strip() or second for first, second in headings] == [
        "Best plans",
        "Plans that fit, knob by knob",
        "Memory against step time",
        "Knobs that matter",
        "What the second loses on",
        "Do not fit",
        "Not evaluated",
    ]
    assert "&lt;model&gt;" in page
    assert "<script" not in page
    assert "http" not in page
    assert page.count("<circle") == 3
    assert page.count("<polyline") == 2


def test_the_page_shows_captures_beside_composed_plans(found: Answer) -> None:
    captured = [
        CapturedTrial(number=1, framework="torchtitan", figures=figures(1.6)),
        CapturedTrial(number=0, framework="torchtitan", words="the script raised"),
    ]
    page = render(msgspec.structs.replace(found, confirmation=CapturedRanking(trials=captured, order=[1])))
    rows = [
        re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in page.partition("Captured <small>")[2].split("<tr")[2:4]
    ]
    assert rows == [
        ["1", "1", "tp=2", "torchtitan", "2.00 s", "1.60 s", "+25.0%", "70.0"],
        ["-", "2", "tp=1", "torchtitan", "1.00 s", "the script raised", "", ""],
    ]


def test_the_page_says_where_plans_were_extended_from_captures_of_a_command(found: Answer) -> None:
    trials = [
        msgspec.structs.replace(
            trial, figures=trial.figures and msgspec.structs.replace(trial.figures, source="extended")
        )
        for trial in found.trials
    ]
    captured = [CapturedTrial(number=1, framework="torchtitan", figures=figures(1.6))]
    page = render(
        msgspec.structs.replace(found, trials=trials, confirmation=CapturedRanking(trials=captured, order=[1]))
    )
    assert "the best extended plans, ranked by captures" in page
    assert "<th>extended</th>" in page


def test_the_table_says_what_decides(found: Answer) -> None:
    out = io.StringIO()
    write(found, out)
    text = " ".join(out.getvalue().split())
    assert "5 points, exhaustive: 3 priced (2 fit), 1 pruned, 1 illegal" in text
    assert "* 2 on the Pareto front of step_time and memory_headroom" in text
    assert "The second, tp=2, compared with the first: compute +1.00 s" in text
    assert "1 do not fit; the nearest: tp=4 by 7.00 GiB" in text


def test_page_and_table_name_the_gpus(found: Answer) -> None:
    """Their number and kinds; nothing where no plan was priced."""
    trials = [
        Trial(number=0, point={"nodes": 1, "tensor": 1}, fate="priced", figures=figures(1.0, gpu="h100-sxm", gpus=8)),
        Trial(number=1, point={"nodes": 2, "tensor": 1}, fate="priced", figures=figures(1.0, gpu="b200", gpus=16)),
    ]
    searched = msgspec.structs.replace(found, trials=trials, best=[0], front=[0], undecided=[0], confirmation=None)
    assert searched.hardware == "8 to 16 x h100-sxm, b200"
    assert msgspec.structs.replace(searched, trials=trials[:1]).hardware == "8 x h100-sxm"
    assert msgspec.structs.replace(searched, trials=[], best=[]).hardware == ""
    text = io.StringIO()
    write(searched, text)
    assert text.getvalue().splitlines()[0].rstrip() == "presim search <model> · 8 to 16 x h100-sxm, b200"
    assert "8 to 16 x h100-sxm, b200. 2 " in render(searched)
