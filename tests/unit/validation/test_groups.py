"""By what runs are told apart."""

from __future__ import annotations

import pytest

from presim.studies.validation.run_groups import GROUPS, gpu, parallelism, size, sort_key, source


def test_sources_are_repositories_or_papers_without_their_rows() -> None:
    assert source({"source": 'github:o/r:docs/x.md#"Table" row 3'}) == "github:o/r"
    assert source({"source": "Somebody et al., table 1 row 3"}) == "Somebody et al., table 1"
    assert source({"source": "", "framework": "f"}) == "f"


def test_parallelism_is_its_axes_without_their_sizes() -> None:
    assert parallelism({"tp": "8", "pp": "1", "dp": "2"}) == "TP + DP"
    assert parallelism({"tp": "1"}) == "one GPU"


@pytest.mark.parametrize(
    ("said", "expected"),
    [("NVIDIA H100-SXM5-80GB", "h100-sxm"), ("H100 80GB", "h100-sxm"), ("TPU v5", "TPU v5"), ("", "not stated")],
)
def test_a_gpu_has_one_name_however_tables_write_it(said: str, expected: str) -> None:
    assert gpu({"gpu": said}) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [("1", "1"), ("2", "2 to 8"), ("8", "2 to 8"), ("9", "9 to 64"), ("512", "65 to 512"), ("2048", "513 and more")],
)
def test_sizes_go_in_steps_of_eight_times(said: str, expected: str) -> None:
    assert size({"n_gpus": said}) == expected
    assert size({}) == "not stated"


def test_groups_are_in_the_order_of_their_numbers() -> None:
    names = ["513 and more", "9 to 64", "not stated", "1", "2 to 8"]
    assert sorted(names, key=sort_key) == ["not stated", "1", "2 to 8", "9 to 64", "513 and more"]
    assert list(GROUPS) == ["source", "GPU", "parallelism", "number of GPUs"]
