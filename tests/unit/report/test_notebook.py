"""Results show themselves in notebooks, with what scripts call themselves escaped, and their figures as charts."""

from __future__ import annotations

import sys
import types
from typing import Any

import msgspec
import pytest

from presim.errors import InputError
from presim.report import notebook
from presim.report.palette import COLOURS, EMPTY_COLOUR
from presim.result import Result
from presim.trace.job import Job
from support.profiles import simulated
from support.workloads import llama_8b


@pytest.fixture(scope="module")
def result() -> Result:
    return simulated().result


def test_a_notebook_shows_the_figures_of_the_result(result: Result) -> None:
    bundle = result._repr_mimebundle_()
    assert bundle["text/html"] == result._repr_html_()
    assert "step" in bundle["text/html"]
    assert "compute" in bundle["text/html"]
    assert bundle["text/plain"].startswith("<Result step ")
    for limit in result.limits:
        assert limit.name in bundle["text/html"]


def test_script_texts_are_escaped(result: Result) -> None:
    failed = msgspec.structs.replace(result, exit="raised", error="<script>alert(1)</script>")
    assert "<script>" not in failed._repr_html_()
    assert "&lt;script&gt;" in failed._repr_html_()


def test_the_parts_of_the_time_chart_add_up_to_the_step(result: Result) -> None:
    spec = notebook.chart_spec(result, "time")
    assert result.step_time_s is not None
    whole = sum(row["ms"] for row in spec["data"]["values"])
    assert whole == pytest.approx(result.step_time_s * 1e3, rel=5e-3)  # slivers are left out
    assert spec["mark"]["type"] == "bar"


def test_charts_of_memory_and_operators_have_the_figures_of_the_result() -> None:
    from presim import hardware
    from presim.evaluation.evaluate_traces import evaluate

    trace = llama_8b(steps=2, layers=2)
    manifest = trace.manifest
    cluster = hardware.choose_cluster(
        gpu=manifest.gpu, world_size=manifest.world_size, gpus_per_node=manifest.gpus_per_node
    )
    found = evaluate(Job.of(trace), cluster).result
    operators = notebook.chart_spec(found, "operators")["data"]["values"]
    assert [row["operator"] for row in operators] == [each.name for each in found.operators[: len(operators)]]
    line = notebook.chart_spec(found, "memory-over-time")["data"]["values"]
    assert max(row["GiB"] for row in line) == pytest.approx(max(found.memory.timeline.reserved_bytes) / 2**30)


def test_a_chart_is_altairs(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    fake = types.ModuleType("altair")
    fake.Chart = types.SimpleNamespace(from_dict=lambda spec: made.append(spec) or "chart")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "altair", fake)
    assert result.chart("operators") == "chart"
    assert made == [notebook.chart_spec(result, "operators")]
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(InputError, match="charts need Altair: pip install altair"):
        result.chart()


def test_a_figure_that_is_not_there_is_named(result: Result) -> None:
    with pytest.raises(InputError, match="there is no figure 'pie'; a result has time, memory"):
        result.chart("pie")
    with pytest.raises(InputError, match="has no data on memory; choose another"):
        notebook.chart_spec(result, "memory")


def test_a_part_has_the_colour_of_pages(result: Result) -> None:
    """It was by its position in the list."""
    scale = notebook.chart_spec(result, "time")["encoding"]["color"]["scale"]
    for name, colour in zip(scale["domain"], scale["range"], strict=True):
        assert colour == COLOURS.get(name, EMPTY_COLOUR)
        assert f"background:{colour}' title='{name} " in result._repr_html_()
