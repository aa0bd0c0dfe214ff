"""Points of a command wait for those below them, until their line is known to have no law."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest

from presim.evaluation.options import RunOptions
from presim.planner.lines.captured_points import CapturedPoints
from presim.planner.lines.line_order import LineOrder, can_extend, extensible_knobs, lines_of, notes_on_lines
from presim.planner.of_command import request_for_command
from presim.planner.search_options import SearchOptions
from presim.planner.trials.trial import Point, Trial
from presim.planner.trials.trial_messages import Lines
from support.searching import figures

KNOBS = {"accum": (8, 16, 32), "nodes": (1, 2, 4)}


def points() -> list[Point]:
    return [{"accum": accum, "nodes": nodes, "tp": 2} for accum in (32, 8, 16) for nodes in (4, 1, 2)]


def test_lower_points_come_first_and_are_waited_for(tmp_path: Path) -> None:
    order = LineOrder(KNOBS, CapturedPoints(tmp_path))
    numbered = order.order(list(enumerate(points())))
    seen: list[Point] = []
    for _, point in numbered:
        assert all(lower in seen for lower in order.waits_for(point))
        seen.append(point)
    assert seen[0] == {"accum": 8, "nodes": 1, "tp": 2}
    assert order.waits_for({"accum": 32, "nodes": 1, "tp": 2}) == [
        {"accum": 8, "nodes": 1, "tp": 2},
        {"accum": 16, "nodes": 1, "tp": 2},
    ]


def test_a_line_ends_after_three_refusals_or_one_that_is_final(tmp_path: Path) -> None:
    captured = CapturedPoints(tmp_path)
    order = LineOrder({"accum": (8, 16, 32, 64, 128, 256)}, captured)
    for count, accum in enumerate((32, 64, 128)):
        assert len(order.waits_for({"accum": 256, "lr": 1})) == 5, count
        captured.refuse({"accum": accum, "lr": 1}, "accum", "it repeats no cycle", is_final=False)
    assert order.waits_for({"accum": 256, "lr": 1}) == []
    assert len(order.waits_for({"accum": 256, "lr": 2})) == 5  # another line
    captured.refuse({"accum": 32, "lr": 2}, "accum", "its kernels differ", is_final=True)
    assert order.waits_for({"accum": 256, "lr": 2}) == []
    assert captured.reasons() == ["accum: it repeats no cycle", "accum: its kernels differ"]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("grad_accum", (1, 2, 4), True),
        ("layers", (8, 5, 7), True),
        ("nodes", (2, 4, 8), True),
        ("global_batch", (64, 128, 256), True),
        ("gbs", (64, 128, 256), True),
        ("nodes", (2, 4), False),  # both would be captured
        ("tp", (1, 2, 4), False),  # work of a layer
        ("mbs", (1, 2, 4), False),
        ("gpus_per_node", (2, 4, 8), False),  # other links
        ("lr", (0.1, 0.2, 0.3), False),
        ("compile", (True, False), False),
        ("mode", ("a", "b", "c"), False),
    ],
)
def test_knobs_that_may_have_a_law_are_whole_numbers_outside_of_a_layer(
    name: str, values: tuple[int, ...], expected: bool
) -> None:
    assert list(extensible_knobs({name: values})) == ([name] if expected else [])


@pytest.mark.parametrize(
    ("launcher", "knobs"), [("torchrun --nproc-per-node {pp}", ["pp"]), ("torchrun --nproc-per-node 8", [])]
)
def test_stages_may_have_a_law_where_each_has_ranks_of_its_own(launcher: str, knobs: list[str]) -> None:
    """With the same ranks, more stages have fewer layers each."""
    command = f"{launcher} train.py --stages {{pp}}".split()
    request = request_for_command(command, SearchOptions(vary=["pp=2,4,8"]), RunOptions(gpu="h100-sxm"))
    with contextlib.ExitStack() as stack:
        lines = lines_of(request, stack)
        assert list(lines.knobs if lines else {}) == knobs


def test_options_that_only_a_capture_answers_capture_each_point() -> None:
    assert can_extend({"gpu": "h100-sxm", "steps": 4})
    assert not can_extend({"draws": 3})
    assert not can_extend({"live": True})
    assert not can_extend({"sanitize": True})


def test_the_notes_say_what_was_extended_and_why_other_points_were_captured(tmp_path: Path) -> None:
    lines = Lines(folder=str(tmp_path), knobs={"accum": [8, 16, 32]})
    captured = msgspec.structs.replace(figures(1.0), source="captured")
    extended = msgspec.structs.replace(figures(2.0), source="extended")
    trials = [
        Trial(number=0, point={"accum": 8}, fate="priced", figures=captured),
        Trial(number=1, point={"accum": 32}, fate="priced", figures=extended, words="micro-batches extended from 8"),
        Trial(number=2, point={"accum": 3}, fate="failed", words="it is odd"),
    ]
    CapturedPoints(tmp_path).refuse({"accum": 16}, "accum", "it repeats no cycle", is_final=False)
    assert notes_on_lines(lines, trials) == [
        "1 of 2 points were not captured but extended from captures of others, first accum=32: micro-batches extended "
        "from 8. --confirm K captures the K best.",
        "Captured where nothing followed from others. Along accum: it repeats no cycle.",
    ]
    assert notes_on_lines(Lines(folder=str(tmp_path / "none"), knobs=lines.knobs), trials[:1]) == []
