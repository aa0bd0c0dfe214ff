"""Spaces are products of knobs, read from words as they are typed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from presim.errors import InputError
from presim.planner.knobs import check_known
from presim.planner.space import Space, parse_knobs
from presim.planner.trials.point_evaluator import plan
from presim.planner.trials.trial import key

KNOBS = some.dictionaries(
    some.sampled_from(["tensor", "micro_batch", "gpu", "recompute"]),
    some.lists(
        some.integers(1, 64) | some.booleans() | some.text("ab", min_size=1), min_size=1, max_size=4, unique_by=str
    ),
    max_size=4,
)


@given(KNOBS)
def test_points_are_numbered_in_order_and_none_comes_twice(knobs: dict[str, list[int]]) -> None:
    space = Space({name: tuple(values) for name, values in knobs.items()}, {"sequence": 4096})
    points = list(space)
    assert [space.number(point) for point in points] == list(range(len(space)))
    assert len({key(point) for point in points}) == len(space)


def test_knobs_have_short_names_ranges_and_the_plan_s_own_types() -> None:
    found = parse_knobs(["tp=2,4", "reshard=true,false", "recompute=full", "nodes=16:128", "mbs=1:5:2", "gpu=b200"])
    assert found == {
        "tensor": (2, 4),
        "reshard": (True, False),
        "recompute": ("full",),
        "nodes": (16, 32, 64, 128),
        "micro_batch": (1, 3, 5),
        "gpu": ("b200",),
    }


def test_passes_are_a_knob_whose_values_are_joined_by_plus() -> None:
    found = parse_knobs(["passes=none,int8,fuse-norm+fp8-row", "schedule=1f1b,dualpipev", "offload_activations=0,8"])
    assert found == {
        "passes": ("none", "int8", "fuse-norm+fp8-row"),
        "schedule": ("1f1b", "dualpipev"),
        "offload_activations": (0, 8),
    }
    chosen = [plan({"sequence": 4096, "passes": value}).passes for value in found["passes"]]
    assert chosen == [(), ("int8",), ("fuse-norm", "fp8-row")]
    with pytest.raises(
        InputError, match=r"passes = 'int9' has no pass 'int9'; use none, or fuse-norm, .* joined by \+"
    ):
        parse_knobs(["passes=int9"])


def test_a_knob_of_the_user_s_own_takes_any_value() -> None:
    found = parse_knobs(["tp=1,2", "lr=0.1", "attention=mine"], any_name=True)
    assert found == {"tp": (1, 2), "lr": (0.1,), "attention": ("mine",)}


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("tp", "'tp' is not a knob with values: write e.g. tp=2,4,8 or nodes=16:128"),
        ("tp=", "'tp=' is not a knob with values: write e.g. tp=2,4,8 or nodes=16:128"),
        ("tp=1,,2", "tensor has an empty value: remove the comma, or write e.g. tensor=1,2"),
        ("tp=two", "tp = 'two' must be a whole number; correct it"),
        ("tp=0", "tp = 0 must be at least 1; correct it"),
        (
            "nodes=8:2",
            "nodes=8:2 is not a range: write first:last for doubling, e.g. 16:128, or first:last:step, "
            "with first at least 1",
        ),
    ],
)
def test_what_is_no_knob_is_one_sentence(word: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence) + "$"):
        parse_knobs([word])


def test_a_value_that_a_plan_s_field_does_not_have_is_named_with_those_it_has() -> None:
    with pytest.raises(InputError, match="recompute = 'half' is not one of none,"):
        parse_knobs(["recompute=half"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tensro", "no knob 'tensro'; did you mean tensor?"),
        ("nodse", "no knob 'nodse'; did you mean node or nodes?"),
        (
            "banana",
            "no knob 'banana': a cluster has gpu, node, fabric, nodes, gpus_per_node, world_size; `presim search "
            "--help` lists the knobs of a plan, such as --tp",
        ),
    ],
)
def test_an_unknown_knob_is_answered_with_the_nearest_names(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence) + "$"):
        check_known(name)


def test_a_knob_is_varied_once() -> None:
    with pytest.raises(InputError, match="tp is varied twice; give all its values in one --vary"):
        parse_knobs(["tensor=1,2", "tp=4"])
