"""Experts as grouped products: drawn numbers of tokens, and their prices."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import RunOptions
from presim.trace.signatures import GroupedGemm
from support.captured import SCRIPTS, evaluated

pytestmark = pytest.mark.torch_cuda

LAYERS, EXPERTS, TOKENS = 3, 16, 4096 * 2
_LINE = re.compile(r"layer (\d+) (\d) ([\d ]+)$", re.MULTILINE)


def captured(routing: str, *args: str, **more: Any) -> Evaluation:
    options = RunOptions(gpu="h100-sxm", values=(f"routing={routing}",), host_time=False, **more)
    return evaluated(SCRIPTS / "grouped_experts.py", *args, options=options)


def counts(text: str) -> dict[tuple[int, int], list[list[int]]]:
    """Tokens per expert by rank and layer, in each forward."""
    found: dict[tuple[int, int], list[list[int]]] = {}
    for rank, layer, numbers in _LINE.findall(text):
        found.setdefault((int(rank), int(layer)), []).append([int(number) for number in numbers.split()])
    return found


def grouped(evaluation: Evaluation) -> list[GroupedGemm]:
    return [one for one in evaluation.priced.trace.signatures if isinstance(one, GroupedGemm)]


def test_each_layer_has_its_own_popular_experts(capfd: pytest.CaptureFixture[str]) -> None:
    """They are the same in every step."""
    captured("zipf:1.0:5")
    drawn = counts(capfd.readouterr().err)
    assert len(drawn) == LAYERS
    assert all(first == later for first, *rest in drawn.values() for later in rest)
    popular = [sorted(range(EXPERTS), key=lambda expert: -each[0][expert])[:4] for each in drawn.values()]
    assert len({tuple(best) for best in popular}) == LAYERS
    for each in drawn.values():
        assert sum(each[0]) == TOKENS
        assert max(each[0]) > 3 * sorted(each[0])[EXPERTS // 2]


def test_a_layer_that_is_computed_again_routes_as_its_forward_did(capfd: pytest.CaptureFixture[str]) -> None:
    captured("zipf:1.0:5", "checkpoint")
    drawn = counts(capfd.readouterr().err)
    assert {len(each) for each in drawn.values()} == {4}  # two steps, each forward and once more
    assert all(first == later for first, *rest in drawn.values() for later in rest)


def test_ranks_have_tokens_of_their_own_and_the_same_popular_experts(capfd: pytest.CaptureFixture[str]) -> None:
    captured("zipf:1.0", world_size=2, ranks="all")
    drawn = counts(capfd.readouterr().err)
    one, other = (drawn[rank, 0][0] for rank in (0, 1))
    assert one != other
    assert one.index(max(one)) == other.index(max(other))
    assert one == pytest.approx(other, abs=0.03 * TOKENS)


def test_grouped_products_have_the_drawn_sizes(capfd: pytest.CaptureFixture[str]) -> None:
    """Up to the grid of sizes; all products of a layer have the same groups."""
    skewed = captured("zipf:1.0:5")
    drawn = counts(capfd.readouterr().err)
    exact = [sorted((size for size in each[0] if size), reverse=True) for each in drawn.values()]
    told = {one.sizes for one in grouped(skewed)}
    assert len(told) == LAYERS
    for sizes in told:
        assert any(len(sizes) == len(each) and sizes == pytest.approx(each, rel=0.05, abs=1) for each in exact)
    assert {one.along for one in grouped(skewed)} == {"m", "k"}


def test_draws_of_several_ranks_that_differ(capfd: pytest.CaptureFixture[str]) -> None:
    """The output of the ranks is shown once, for the first draw."""
    result = captured("zipf:1.0:5", draws=2, world_size=2).result
    assert result.draws is not None
    assert len(result.draws.step_times_s) == 2
    assert [rank.rank for rank in result.ranks] == [0, 1]
    assert set(counts(capfd.readouterr().err)) == {(rank, layer) for rank in (0, 1) for layer in range(LAYERS)}


@pytest.mark.long
def test_percentiles_of_the_step_time_over_draws() -> None:
    """The first draw equals the run without further draws; each seed has different groups and times."""
    alone, several = captured("zipf:1.0:5").result, captured("zipf:1.0:5", draws=3).result
    assert alone.draws is None
    draws = several.draws
    assert draws is not None
    assert (draws.routing, draws.step_times_s[0]) == ("zipf:1.0:5", alone.step_time_s)
    assert several.step_time_s == alone.step_time_s
    assert len(set(draws.step_times_s)) == 3
    assert min(draws.step_times_s) < draws.p10_s < draws.p50_s < draws.p90_s < max(draws.step_times_s)
    assert several.notes[0].startswith(
        "Over 3 draws of experts (routing=zipf:1.0:5 and the next seeds) the step takes "
    )


def test_balanced_groups_say_nothing(tmp_path: Path) -> None:
    assert {one.sizes for one in grouped(captured("balanced"))} == {()}
