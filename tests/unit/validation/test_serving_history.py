"""Errors of a committed sample of published serving runs, beside the history of such errors."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from presim.studies.validation import serving

ROOT = Path(__file__).parents[3]
WORSE = 0.01  # of a median error: one point


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "validation"), *sys.path])
    import serving_history

    return serving_history


def row(model: str, measured: float, predicted: float, engine: str = "vllm") -> dict[str, str]:
    ends = {f"predicted_{name}_{end}": str(predicted * factor) for name in ("tpot", "ttft")
            for end, factor in (("low", 0.9), ("high", 1.1))}  # fmt: skip
    figures = {f"{name}_mean_ms": str(measured) for name in ("tpot", "ttft")}
    predictions = {f"predicted_{name}": str(predicted) for name in ("tpot", "ttft")}
    return {"framework": engine, "model": model, "mode": "agg", **ends, **figures, **predictions}


def test_no_group_of_the_sample_is_more_than_a_point_worse_than_its_last_line(history: ModuleType) -> None:
    """If it is on purpose, ``python validation/serving_history.py OUT --runs sample --append WHY`` adds a line."""
    predicted = serving.predict(serving.read(ROOT / "validation" / "serving_sample.csv"))
    assert not [line["reason"] for line in predicted if line["reason"]]
    last = {(line["engine"], line["figure"]): line for line in history.read_history() if line["runs"] == "sample"}
    for line in history.lines(predicted, "sample", "", ""):
        former = last[line["engine"], line["figure"]]
        assert float(line["median"]) <= float(former["median"]) + WORSE, (line, former)


def test_a_line_has_the_median_the_bias_and_the_share_inside(history: ModuleType) -> None:
    rows = [row("a", 10, 10), row("a", 10, 12), row("b", 10, 9)]
    line = history.lines(rows, "published", "why", "2026-01-02")[0]
    assert (line["engine"], line["figure"], line["rows"]) == ("vllm", "tpot", "3")
    assert (line["median"], line["bias"], line["inside"]) == ("0.1000", "+0.0000", "0.333")


def test_a_family_is_judged_with_the_offset_of_the_others(history: ModuleType) -> None:
    rows = [row("a", 15, 10), row("a", 25, 20), row("b", 35, 30), row("b", 45, 40)]
    table = history.families(rows).splitlines()
    assert table[-2].startswith("| vLLM | a | 2 |")
    assert table[-2].split("|")[7].strip() == "0.0%"  # TTFT: 5 ms more, as the other family says


def test_the_picture_is_the_same_for_the_same_history(history: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = history.lines([row("a", 10, 10)] * 3, "published", "why", "2026-01-02")
    for name in ("a.svg", "b.svg"):
        history.draw(lines, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
