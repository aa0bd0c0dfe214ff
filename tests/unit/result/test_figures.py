"""What holds for every figure of a result."""

from __future__ import annotations

import importlib
import pkgutil
import typing

import msgspec
import pytest

import presim.result
from presim.result import Result
from presim.result.comparison import Comparison
from presim.result.deployments import DeployResult
from presim.result.explanation import Explanation
from presim.result.serving import ServingResult
from presim.result.training import Projection

STRUCTS = [
    value
    for module in pkgutil.iter_modules(presim.result.__path__)
    if module.name != "step_figures"  # of pictures: part of no answer
    for value in vars(importlib.import_module(f"presim.result.{module.name}")).values()
    if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__.endswith(module.name)
]
UNITS = {"_s": float, "_bytes": int, "_ns": int, "_share": float}


def leaves(hint: object) -> set[object]:
    """The plain types that an annotation is made of."""
    parts = typing.get_args(hint)
    return set().union(*(leaves(part) for part in parts)) if parts else {hint}


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_a_figure_says_what_it_is_and_its_name_its_unit(struct: type[msgspec.Struct]) -> None:
    hints = typing.get_type_hints(struct)
    for name, schema in msgspec.json.schema(struct)["$defs"][struct.__name__]["properties"].items():
        assert schema.get("description"), name
        unit = next((unit for unit in UNITS if name.endswith(unit)), None)
        if unit:
            assert leaves(hints[name]) - {str, type(None)} == {UNITS[unit]}, name


def test_every_part_is_in_an_answer() -> None:
    """Of a prediction, a served load, a deployment, a comparison, an explanation, or a whole training."""
    answers = (Result, ServingResult, DeployResult, Comparison, Explanation, Projection)
    definitions = {name for answer in answers for name in msgspec.json.schema(answer)["$defs"]}
    bases = {base.__name__ for struct in STRUCTS for base in struct.__mro__[1:]}
    assert {struct.__name__ for struct in STRUCTS} <= definitions | bases


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_a_part_cannot_be_changed(struct: type[msgspec.Struct]) -> None:
    assert struct.__struct_config__.frozen
