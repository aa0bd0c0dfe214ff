"""The best plan of each cluster on every other."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from presim.cli import main
from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.planner.answer.matrix_page import picture
from presim.planner.matrix import Matrix, clusters_of, search_matrix
from presim.planner.objectives import OBJECTIVES
from presim.planner.run_search import answer
from presim.planner.search_options import SearchOptions
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.study import Answer
from presim.planner.trials.trial import Point, Trial
from presim.system.files import decode_json
from support.searching import figures

SECONDS = {  # by GPU and tensor parallelism; an A100 has too little memory without it
    ("h100-sxm", 1): 1.0,
    ("h100-sxm", 2): 1.25,
    ("a100-80gb-sxm", 2): 3.0,
    ("b200", 1): 0.5,
    ("b200", 2): 0.75,
}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Matrix:
    """Three clusters whose step times are known beforehand."""

    def request(model: str, settings: SearchOptions, options: RunOptions, fixed: Point) -> SearchRequest:
        varied = {} if "tensor" in fixed else {"tensor": (1, 2)}
        space = Space(varied, {**fixed, "gpu": options.gpu or ""})
        return SearchRequest(subject=model, space=space, objectives=[OBJECTIVES["step_time"]])

    def simulated(request: SearchRequest, progress: Callable[[str], None] = print) -> Answer:
        trials = []
        for number, point in enumerate(request.space):
            seconds = SECONDS.get((str(point["gpu"]), int(point["tensor"])))
            result = figures(seconds or 1.0, headroom_gib=10.0 if seconds else -1.0)
            plan = {name: value for name, value in point.items() if name != "gpu"}
            trials.append(Trial(number=number, point=plan, fate="priced", figures=result))
        return answer(request, trials)

    monkeypatch.setattr("presim.planner.matrix.request_for_model", request)
    monkeypatch.setattr("presim.planner.matrix.run", simulated)
    clusters = clusters_of(["h100-sxm:1,a100-80gb-sxm", "b200:2"])
    return search_matrix("m", SearchOptions(vary=("tp=1,2",)), RunOptions(), {}, clusters)


def test_losses_follow_from_step_times(found: Matrix) -> None:
    """Plan by plan: H100's is without tensor parallelism, A100's with, B200's without."""
    assert found.plans == [{"tensor": 1}, {"tensor": 2}, {"tensor": 1}]
    assert [run.loss for run in found.runs] == pytest.approx([0, None, 0, 0.25, 0, 0.5, 0, None, 0])
    assert [run.words for run in found.runs if run.loss is None] == ["does not fit", "does not fit"]


def test_the_diagonal_has_no_loss_and_no_plan_beats_the_best(found: Matrix) -> None:
    """A cluster's own plan is the best of its space, which holds the plans of the others."""
    assert len(found.runs) == 9
    for run in found.runs:
        if run.plan_of == run.on:
            assert run.loss == 0.0
        elif run.loss is not None:
            assert run.loss >= -1e-9
        else:
            assert run.words


def test_json_comes_back(found: Matrix) -> None:
    from presim.planner.matrix import encode

    assert decode_json(encode(found), Matrix) == found


def test_the_picture_has_a_cell_for_each_run(found: Matrix) -> None:
    cells = ET.fromstring(picture(found)).findall("{http://www.w3.org/2000/svg}g")
    assert len(cells) == len(found.runs)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["h100-sxm"], "--matrix compares clusters: name two or more, e.g. --matrix h100-sxm:16,b200:8"),
        (["h100-sxm:2,h100-sxm:2"], "--matrix names h100-sxm:2 twice; leave one of them out"),
        (["h100-sxm:x,b200"], "--matrix takes GPU:NODES, such as h100-sxm:16, or a cluster file; got 'h100-sxm:x'"),
    ],
)
def test_clusters_that_cannot_be_compared_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        clusters_of(texts)
    assert str(error.value) == message


def test_other_clusters_beside_the_matrix_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "gpt2", "--gpu", "h100-sxm", "--seq", "128", "--matrix", "h100-sxm,b200"]
    assert main.run(words) == 2
    said = capsys.readouterr().err
    assert re.search(r"--matrix searches plans of one model on the clusters that it names; leave out --gpu", said)
