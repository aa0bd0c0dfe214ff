"""A result of every kind that has figures names what it is of, and its figures are numbers of its file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from presim.app.figures import summary_of
from presim.app.key_figures import Summary
from presim.studies.saved_results.read_result import read
from presim.system.files import decode_json
from support import saved_results

FIRST_FIGURES = {  # kind: key of its first figure, and the path of its number in the file
    "explanation": ("step", "step_time_s"),
    "comparison": ("step 1", "results/0/step_time_s"),
    "network": ("collective", "seconds"),
    "prefill": ("prefill dynamic", "batches/0/policies/dynamic/ms"),
    "serving": ("mean_ttft_ms", "figures/mean_ttft_ms"),
    "deployments": ("tokens_per_s_per_gpu", "best/tokens_per_s_per_gpu"),
    "training": ("days", "days/mean"),
    "rl": ("rl_step", "figures/step_time_s"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results")
    saved_results.samples(path)
    return path


def summary(folder: Path, kind: str) -> Summary:
    return summary_of(read(folder / f"{kind}.json"))


@pytest.mark.parametrize("kind", FIRST_FIGURES)
def test_the_first_figure_is_the_number_of_the_file(folder: Path, kind: str) -> None:
    key, path = FIRST_FIGURES[kind]
    value = decode_json((folder / f"{kind}.json").read_bytes())
    for part in path.split("/"):
        value = value[int(part)] if isinstance(value, list) else value[part]
    first = summary(folder, kind).figures[0]
    assert (first.key, first.number) == (key, value)


@pytest.mark.parametrize("kind", [*FIRST_FIGURES, "run", "gate", "search", "search-matrix"])
def test_a_summary_says_what_it_is_of_and_no_figure_is_zero_by_rounding(folder: Path, kind: str) -> None:
    """A number that is not 0 has a text with a digit that is not 0."""
    found = summary(folder, kind)
    assert found.subject
    assert found.figures
    for figure in found.figures:
        assert figure.text
        if figure.number and math.isfinite(figure.number):
            assert set(figure.text) & set("123456789"), figure


def test_a_gate_names_the_jobs_beyond_their_budget(folder: Path) -> None:
    found = summary(folder, "gate")
    assert (found.figures[0].text, found.warning) == ("0 of 1", "beyond the budget or failed: small")
