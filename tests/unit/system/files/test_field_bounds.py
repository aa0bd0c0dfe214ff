"""Every number that a file gives to a struct has a least and a largest value."""

from __future__ import annotations

import ast
import functools
import importlib
import typing
from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, Any

import msgspec
import msgspec.inspect as inspect
import pytest

from presim.system.files import FormatError, convert, decode_json
from presim.system.files.field_bounds import GBps, bounds
from presim.units import quantities
from support.source_trees import PACKAGE, by_room, rooms, source_trees

READERS = ("convert", "to_type", "decode_json", "decode_messagepack", "decode")  # the type is the second argument
# Module or struct -> what bounds its numbers instead.
EXCEPTIONS = {
    "presim.result.Result": "`presim.report.json` checks all numbers of a result by their names",
    "presim.sources.kineto.events": "other tools write 64 bits without a sign; an event lies within a day of the first",
    "presim.system.files": "the readers themselves",
    "presim.composition.graph.export": "messages between presim's own processes",
    "presim.composition.graph.take": "messages between presim's own processes",
    "presim.composition.models.describe_model": "descriptions of presim: shipped, in its cache, between its processes",
    "presim.cost.profile.bench": "messages between presim's own processes",
    "presim.cost.measured.row_index": "a cache in presim's own folder",
    "presim.planner.trials.point_evaluator": "messages between presim's own processes",
    "presim.planner.trials.trial_process": "messages between presim's own processes",
    "presim.planner.trials.ray_workers": "messages between presim's own processes",
    "presim.planner.trials.reply_cache": "a cache in presim's own folder",
    "presim.planner.trials.worker": "messages between presim's own processes",
    "presim.verbs.capture_steps": "a cache in presim's own folder",
    "presim.verbs.step_times": "a capture's own files",
}


@functools.cache
def _modules() -> dict[str, ast.Module]:
    """The modules that read files, with their syntax trees."""
    trees = {
        ".".join(("presim", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): tree
        for path, tree in source_trees().items()
        if "shim" not in path.parts
    }
    return {name: tree for name, tree in trees.items() if _calls(tree) and not _is_excepted(name)}


def _is_excepted(name: str) -> bool:
    return any(name == other or name.startswith(f"{other}.") for other in EXCEPTIONS)


@functools.cache
def _calls(tree: ast.Module) -> tuple[str, ...]:
    """The types that a module names to readers, as they stand in its source."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return tuple(
        ast.unparse(call.args[1])
        for call in calls
        if len(call.args) > 1 and ast.unparse(call.func).rpartition(".")[2] in READERS
    )


def _types_read(name: str, tree: ast.Module) -> Iterator[Any]:
    """The types to which a module converts files; where an argument says which, all that its variable stands for."""
    module = importlib.import_module(name)
    for source in _calls(tree):
        value = _evaluated(source, module)
        if value is None:
            yield from _bound_types(module)
        elif not isinstance(value, str):  # a string: `bytes.decode` and its way with errors
            yield value


def _evaluated(source: str, module: ModuleType) -> Any:
    try:
        return eval(source, vars(module))
    except (NameError, AttributeError):
        return None


def _bound_types(module: ModuleType) -> Iterator[type]:
    for variable in vars(module).values():
        if isinstance(variable, typing.TypeVar) and variable.__bound__ is not None:
            yield from variable.__bound__.__subclasses__()


def _parts(part: inspect.Type, path: str, visited: set[type]) -> Iterator[tuple[str, inspect.Type]]:
    """The types within a type, with the struct and the field in which they stand."""
    yield path, part
    if isinstance(part, inspect.StructType):
        name = f"{part.cls.__module__}.{part.cls.__name__}"
        if part.cls not in visited and not _is_excepted(name):
            visited.add(part.cls)
            for field in part.fields:
                yield from _parts(field.type, f"{name}.{field.name}", visited)
        return
    single = (getattr(part, name) for name in ("item_type", "key_type", "value_type", "type") if hasattr(part, name))
    for inner in (*single, *getattr(part, "item_types", ()), *getattr(part, "types", ())):
        yield from _parts(inner, path, visited)


def _is_bounded(part: inspect.Type) -> bool:
    if not isinstance(part, inspect.IntType | inspect.FloatType):
        return True
    return (part.ge, part.gt) != (None, None) and (part.le, part.lt) != (None, None)


def _is_read_wrongly(part: inspect.Type) -> bool:
    """msgspec 0.22 takes the bounds of a number from the wrong place, and crashes, where it may also be a pair."""
    options = part.types if isinstance(part, inspect.UnionType) else ()
    return any(isinstance(option, inspect.TupleType) for option in options) and any(
        isinstance(option, inspect.IntType | inspect.FloatType) for option in options
    )


@pytest.mark.parametrize("room", rooms())
def test_each_number_of_a_file_has_bounds(room: str) -> None:
    for name in by_room(_modules()).get(room, []):
        for type_ in _types_read(name, _modules()[name]):
            parts = list(_parts(inspect.type_info(type_), str(type_), set()))
            assert not [path for path, part in parts if not _is_bounded(part)], name
            assert not [path for path, part in parts if _is_read_wrongly(part)], name


def test_readers_are_seen() -> None:
    types = [type_ for name, tree in _modules().items() for type_ in _types_read(name, tree)]
    names = {type_.__name__ for type_ in types if isinstance(type_, type)}
    expected = {
        "LinkConstants",
        "FabricConstants",
        "Gpu",
        "Node",
        "_Tables",
        "_JobFile",
        "OperatorGraph",
        "LearnedModel",
    }
    assert expected <= names


def test_an_exception_is_still_there() -> None:
    for name in EXCEPTIONS:
        part, _, last = name.removeprefix("presim.").rpartition(".")
        path = PACKAGE.joinpath(*part.split("."), last)
        modules = path, path.with_suffix(".py"), path.parent.with_suffix(".py"), path.parent / "__init__.py"
        assert any(module.exists() for module in modules), name


class _Link(msgspec.Struct):
    speed_GBps: GBps
    ports: tuple[Annotated[int, bounds(quantities.PORT)], ...] = ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"speed_GBps": 1e300}', "Expected `float` <= 1000000.0, not 1e+300 - at `$.speed_GBps`"),
        ('{"speed_GBps": -1}', "Expected `float` >= 0.0, not -1 - at `$.speed_GBps`"),
        ('{"speed_GBps": 1, "ports": [1, 70000]}', "Expected `int` <= 65535, not 70000 - at `$.ports[1]`"),
        ('{"speed_GBps": "x"}', "Expected `float`, got `str` - at `$.speed_GBps`"),
    ],
)
def test_a_number_beyond_its_bounds_is_named(text: str, message: str) -> None:
    with pytest.raises(FormatError) as refused:
        convert(decode_json(text), _Link)
    assert str(refused.value) == message


def test_bounds_are_those_of_the_option() -> None:
    assert bounds(quantities.DAYS) == msgspec.Meta(gt=0, le=1e6)
    assert bounds(quantities.SEQUENCE) == msgspec.Meta(ge=1, le=1 << 24)
