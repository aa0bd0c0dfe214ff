"""Tested versions of frameworks, and missing packages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from presim.capture.adapters.framework_versions import TESTED, how_to_install, untested_version_notes

REQUIREMENTS = Path(__file__).parents[4] / "requirements"


def test_a_version_outside_the_range_is_named_with_the_range() -> None:
    assert untested_version_notes({"deepspeed": "0.20.1", "transformers": "5.23.0"}) == [
        "deepspeed 0.20.1 is not tested with presim (0.19 is): new behaviour may not be captured."
    ]
    assert "(5.20 to 5.23 is)" in untested_version_notes({"transformers": "4.57.1"})[0]


@pytest.mark.parametrize("versions", [{"deepspeed": "0.19.0"}, {"numpy": "1.0"}, {"vllm": "?"}, {"vllm": "0.33.1rc1"}])
def test_tested_and_unknown_versions_give_no_note(versions: dict[str, str]) -> None:
    assert untested_version_notes(versions) == []


def test_versions_that_the_tests_install_are_tested_ones() -> None:
    text = "\n".join(path.read_text() for path in REQUIREMENTS.glob("*.txt"))
    pinned = dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))
    named = {name: pinned[name.replace(".", "-")] for name in TESTED if name.replace(".", "-") in pinned}
    assert {"deepspeed", "transformers", "vllm"} <= set(named)
    assert untested_version_notes(named) == []


@pytest.mark.parametrize(
    ("missing", "package"), [("flash_attn", "flash_attn"), ("PIL.Image", "pillow"), ("yaml", "pyyaml")]
)
def test_a_missing_package_is_reported_with_the_install_command(
    missing: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, missing.split(".")[0], raising=False)
    error = ModuleNotFoundError(f"No module named {missing!r}", name=missing)
    assert f"-m pip install {package}`" in how_to_install(error)
    assert how_to_install(ValueError("no")) == ""


def test_a_missing_part_of_a_package_is_not_a_missing_package() -> None:
    error = ModuleNotFoundError("No module named 'pytest.rocket'", name="pytest.rocket")
    assert how_to_install(error) == " (pytest is installed, in a version without this part)"
