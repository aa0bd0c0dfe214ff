"""Groups of options: added to a verb, taken from what it was called with, or declared again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Options = TypeVar("_Options")


def add_options(*groups: tuple[Any, ...]) -> Callable[[_Function], _Function]:
    """Decorator that adds all options of some groups, in order."""

    def add(function: _Function) -> _Function:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return add


def pop_options(group: type[_Options], options: dict[str, Any]) -> _Options:
    """Remove the options of a group from a verb's options, and return them as its value."""
    return group(**{field.name: options.pop(field.name) for field in dataclasses.fields(group)})  # type: ignore[arg-type]


def redeclared(options: tuple[Any, ...], flag: str, name: str, **settings: Any) -> Any:
    """One option of a group under another name, with further settings of click's, which precede those declared."""

    def declarations(**values: object) -> None:
        """Carries the options."""

    for option in options:
        option(declarations)
    declared = next(option for option in declarations.__click_params__ if flag in option.opts)  # type: ignore[attr-defined]
    shared = {"type": declared.type, "help": declared.help}
    if declared.is_flag:
        shared["flag_value"] = declared.flag_value
    return click.option(flag, name, **{**shared, **settings})
