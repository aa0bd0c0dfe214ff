"""The table names knobs whole in any terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from presim.planner.answer.search_table import write
from presim.planner.objectives import OBJECTIVES, Work
from presim.planner.run_search import answer
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.study import Answer
from presim.planner.trials.trial import Trial, Value
from support.searching import figures

KNOBS: dict[str, tuple[Value, ...]] = {
    "gpu": ("h100-sxm", "b200"),
    "nodes": (16, 128),
    "tensor": (1, 8),
    "pipeline": (1, 16),
    "virtual": (1, 4),
    "micro_batch": (1, 8),
    "recompute": ("none", "full"),
    "reshard": (True, False),
    "data_style": ("fsdp2", "zero1"),
}


def searched(objective: str = "step_time") -> Answer:
    request = SearchRequest(subject="model", space=Space(KNOBS, {"sequence": 64}), objectives=[OBJECTIVES[objective]])
    points = [next(iter(request.space)), list(request.space)[-1]]
    trials = [
        Trial(number=number, point=point, fate="priced", figures=figures(1.0 + number, joules=500.0))
        for number, point in enumerate(points)
    ]
    return answer(request, trials)


def shown(width: int, objective: str = "step_time") -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    write(searched(objective), console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return str(text)


@pytest.mark.parametrize("width", [80, 100, 130])
def test_no_knob_is_shortened(width: int) -> None:
    text = shown(width)
    lines = text.split("Undecided")[0].split("The first is")[0]
    assert "\u2026" not in lines
    for word in ("gpu", "nodes", "tp", "pp", "vpp", "mbs", "recompute", "reshard", "dp-style", "step time", "h100-sxm"):
        assert word in " ".join(lines.split())


def test_with_room_every_figure_is_there() -> None:
    assert "step time" in shown(130)
    narrow = Answer(**{**{name: getattr(searched(), name) for name in Answer.__struct_fields__}, "varied": {}})
    console = Console(file=io.StringIO(), width=130, force_terminal=True, color_system=None)
    write(narrow, console=console)
    header = console.file.getvalue().splitlines()[2]  # type: ignore[attr-defined]
    assert [word for word in ("MFU", "spare", "exposed", "limit", "tokens/s/GPU") if word not in header] == []


def test_a_lone_plan_is_better_than_none() -> None:
    request = SearchRequest(subject="model", space=Space({"tensor": (1, 2)}, {}), objectives=[OBJECTIVES["step_time"]])
    trials = [
        Trial(number=0, point={"tensor": 1}, fate="priced", figures=figures()),
        Trial(number=1, point={"tensor": 2}, fate="priced", figures=figures(headroom_gib=-1)),
    ]
    lone, pruned = (io.StringIO() for _ in range(2))
    write(answer(request, trials), lone)
    write(answer(request, [trials[0], Trial(number=1, point={"tensor": 2}, fate="pruned", rule="x")]), pruned)
    assert "The only plan of 2 that meets every constraint." in lone.getvalue()
    assert "The only plan of 2 that meets every constraint among those evaluated; 1 pruned." in pruned.getvalue()


def test_a_failed_trial_is_shown_with_its_own_words() -> None:
    request = SearchRequest(
        subject="command", space=Space({"tensor": (1, 8)}, {}), objectives=[OBJECTIVES["step_time"]]
    )
    trials = [
        Trial(number=0, point={"tensor": 1}, fate="priced", figures=figures()),
        Trial(number=1, point={"tensor": 8}, fate="failed", words="12 heads are not divided by 8"),
    ]
    text = io.StringIO()
    write(answer(request, trials), text)
    assert "1 failed; the first, tp=8: 12 heads are not divided by 8" in text.getvalue()


def test_energy_is_an_objective_in_joules_of_all_gpus_for_a_token() -> None:
    assert OBJECTIVES["energy"].of(figures(joules=500.0), Work()) == 8 * 500.0 / 1e6
    assert "0.004 J/token" in shown(130, "energy")
    assert OBJECTIVES["energy"].of(figures(), Work()) is None
