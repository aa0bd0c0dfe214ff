"""Options of Megatron-LM that are no decoder's: Muon and squared ReLU take a recipe of their own."""

from __future__ import annotations

import pytest

from presim.validation import variants
from presim.validation.cases import Case


@pytest.mark.parametrize(
    ("other", "sharding", "expected"),
    [
        ("swiglu=True", "ddp", ()),
        ("optimizer=adam", "distributed-optimizer", ()),
        ("optimizer=muon", "ddp", ("--muon", "whole")),
        ("optimizer=muon", "distributed-optimizer(ZeRO-1)", ("--muon", "by-layer")),
        ("optimizer=dist_muon;squared-relu=True", "ddp", ("--squared-relu", "--muon", "by-layer")),
    ],
)
def test_what_a_case_asks_for_is_an_argument(other: str, sharding: str, expected: tuple[str, ...]) -> None:
    assert variants.arguments(Case({"id": "x", "other": other, "sharding": sharding})) == expected
