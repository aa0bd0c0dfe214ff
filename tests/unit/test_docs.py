"""The documentation that the code writes is up to date."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    """A script of ``docs``, which is in no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["reference/cli.md", "reference/result.md", "reference/result.schema.json"])
def test_generated_pages_are_up_to_date(name: str) -> None:
    """After a change of the code: ``python docs/generate.py``."""
    expected = script("generate").generated()[ROOT / "docs" / name]
    assert (ROOT / "docs" / name).read_text() == expected


def test_every_generated_page_is_checked() -> None:
    """A page that is added is added above."""
    assert len(script("generate").generated()) == 3


def test_the_figures_of_the_readme_are_those_of_the_predictions() -> None:
    """``docs/validation.py`` writes both; nobody copies them by hand."""
    page = script("validation")
    rows = page.read([str(page.RESULTS / "predictions.csv")])
    assert page.with_figures(page.README.read_text(), rows) == page.README.read_text()


def test_rows_that_were_computed_count_nowhere() -> None:
    """They stay among the predictions; of their source the page and the README have the measured runs alone."""
    page = script("validation")
    rows = page.read([str(page.RESULTS / "predictions.csv")])
    kept = page.measured(rows)
    assert len(kept) < len(rows)
    runs = len([row for row in kept if "VIA-Research/vTrain" in row["source"] and row["error"]])
    assert f"VIA-Research/vTrain | {runs} |" in page.PAGE.read_text()
    assert re.search(rf"\| vTrain \|[^|]*\| {runs} \|", page.README.read_text())


def test_the_report_in_the_readme_is_described_as_it_is() -> None:
    """``docs/picture.py`` draws it anew; what stands for it in words has the same figures."""
    picture = (ROOT / "docs" / "pictures" / "report.svg").read_text().replace("&#160;", " ")
    words = re.search(r"step time (.+?), MFU (.+?) %, memory (.+?),", (ROOT / "README.md").read_text())
    assert words is not None
    step, mfu, memory = words.groups()
    for figure in (step, f"{mfu}%", memory):
        assert f">{figure}" in picture
