"""Options of serving as values: what the command line declares is what Python takes, with the same defaults."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
import pytest

from presim.cli.engine_options import ENGINE
from presim.cli.fleet_options import ENGINES_TOGETHER, FLEET, LIFE
from presim.cli.load_options import LOAD
from presim.cli.option_groups import pop_options
from presim.serving.serving_options import EngineOptions, EnginesOptions, FleetOptions, LifeOptions, LoadOptions

GROUPS = [
    (ENGINE, EngineOptions),
    (LOAD, LoadOptions),
    (ENGINES_TOGETHER, EnginesOptions),
    (FLEET, FleetOptions),
    (LIFE, LifeOptions),
]


def _defaults(declarations: tuple[Any, ...]) -> dict[str, object]:
    """Defaults by name, of a verb with these options and no words."""

    def collect(**options: object) -> dict[str, object]:
        return options

    for option in declarations:
        collect = option(collect)
    values: dict[str, object] = click.command()(collect).main([], standalone_mode=False)
    return values


@pytest.mark.parametrize(("declarations", "group"), GROUPS, ids=[group.__name__ for _, group in GROUPS])
def test_the_command_line_declares_the_fields_with_their_defaults(declarations: tuple[Any, ...], group: type) -> None:
    defaults = _defaults(declarations)
    assert defaults == dataclasses.asdict(group())
    assert pop_options(group, defaults) == group()
    assert not defaults
