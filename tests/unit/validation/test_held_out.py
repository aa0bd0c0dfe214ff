"""The page on learned prices says what the packaged models say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent.parent / "validation"


def test_the_page_is_that_of_the_packaged_models() -> None:
    """After presim fit: python validation/held_out.py --out validation/results/operators-learned.md."""
    spec = importlib.util.spec_from_file_location("held_out", FOLDER / "held_out.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (FOLDER / "results" / "operators-learned.md").read_text() == module.text()
