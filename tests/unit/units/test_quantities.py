"""Every numeric option is finite and bounded, and refuses what lies beyond with its bounds."""

from __future__ import annotations

import inspect
import math

import click
import pytest
from click.types import FloatParamType, IntParamType
from hypothesis import given
from hypothesis import strategies as st

from presim.cli import main
from presim.cli.numbers import Real, Whole, number
from presim.errors import InputError
from presim.evaluation.options import RunOptions, SimulateOptions
from presim.units import quantities
from presim.units.quantities import Quantity

ALL = {name: kind for name, kind in vars(quantities).items() if isinstance(kind, Quantity)}


def options() -> dict[str, click.Option]:
    """All options of all verbs, as ``verb --option``."""
    found: dict[str, click.Option] = {}
    for verb in main.VERBS:
        command = main.cli.get_command(click.Context(main.cli), verb)
        assert command is not None
        parts = command.commands if isinstance(command, click.Group) else {"": command}
        for name, part in parts.items():
            found |= {
                f"{verb} {name} {option.opts[0]}": option for option in part.params if isinstance(option, click.Option)
            }
    return found


OPTIONS = options()


def test_no_quantity_is_declared_twice() -> None:
    """The second would give its words to all options of the first."""
    names = [line.partition(" = ")[0] for line in inspect.getsource(quantities).splitlines() if " = " in line]
    constants = [name for name in names if name.isupper()]
    assert len(constants) == len(set(constants))


def test_no_option_takes_a_number_without_bounds() -> None:
    bare = [
        name
        for name, option in OPTIONS.items()
        if isinstance(option.type, IntParamType | FloatParamType) and not isinstance(option.type, Whole | Real)
    ]
    assert not bare
    assert sum(isinstance(option.type, Whole | Real) for option in OPTIONS.values()) > 80


@pytest.mark.parametrize("word", ["nan", "-inf", "1e400", "9" * 26, "7" * 5000, "x", "", "1_0"])
def test_a_word_that_is_no_quantity_is_refused_with_the_bounds(word: str) -> None:
    for name, option in OPTIONS.items():
        if not isinstance(option.type, Whole | Real):
            continue
        with pytest.raises(click.BadParameter) as refused:
            option.type.convert(word, option, None)
        assert str(option.type.quantity) in refused.value.message, name
        assert len(refused.value.message) < 200, name


@pytest.mark.parametrize("name", ALL)
def test_the_bounds_themselves_are_taken_and_what_lies_beyond_is_not(name: str) -> None:
    kind = ALL[name]
    assert math.isfinite(kind.least)
    assert math.isfinite(kind.greatest)
    assert not kind.problem(kind.greatest if not kind.is_whole else int(kind.greatest))
    assert kind.problem(kind.greatest * 2 + 1)
    assert kind.problem(kind.least - 1)
    assert bool(kind.problem(int(kind.least))) == (kind.is_open or int(kind.least) < kind.least)


@pytest.mark.parametrize("value", [True, None, "8", [1], math.nan])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"^nodes: .* is not a number"):
        quantities.NODES.check(value, "nodes")


def test_a_fraction_is_not_read_as_a_whole_number() -> None:
    with pytest.raises(InputError, match=r"^world_size: 8\.5 is not a whole number$"):
        RunOptions(gpu="h100-sxm", world_size=8.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"jitter_draws": 0}, "jitter_draws: 0 is not a number of draws from 1 to 1,000,000"),
        ({"seed": -1}, "seed: -1 is not a seed from 0 to 9.22337e+18"),
        ({"host_factor": math.inf}, "host_factor: inf is not a host factor from 0 to 1,000,000"),
        ({"nodes": 1 << 40}, "nodes: 1099511627776 is not a number of nodes from 1 to 1,048,576"),
    ],
)
def test_python_has_the_bounds_of_the_command_line(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        SimulateOptions(**keywords)  # type: ignore[arg-type]
    assert str(refused.value) == message


@given(st.floats() | st.integers(), st.sampled_from(sorted(ALL)))
def test_a_number_is_taken_or_refused_in_words(value: float, name: str) -> None:
    option = click.Option(["--n"])
    try:
        taken = number(ALL[name]).convert(repr(value), option, None)
    except click.BadParameter as refused:
        assert refused.message
    else:
        assert ALL[name].least <= taken <= ALL[name].greatest
