"""The keywords with which Python asks a verb: its flags, and fields of plans and options that mean the same.

``seq`` and ``sequence``, ``mbs`` and ``micro_batch``, ``no_contention=True`` and ``contention=False`` are alike:
`presim.run` and the plans of a search have the latter names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import click

from presim.cli.declared import Declaration, command_of, declarations, python_keyword

_OTHER_FORM = frozenset({"rank_passes"})  # fields whose option takes a file


@dataclasses.dataclass(frozen=True)
class Keyword:
    """An option by one of its names in Python."""

    option: Declaration
    is_inverse: bool = False  # True means what the flag turns off, as ``contention`` of --no-contention


def keywords_of(verb: str) -> dict[str, Keyword]:
    """The keywords of a verb, those of flags first.

    Raises:
        InputError: there is no such verb.
    """
    options = [option for option in declarations(verb) if option.flag]
    keywords = {python_keyword(option.flag): Keyword(option) for option in options}
    inverse = {parameter.name for parameter in command_of(verb).params if _turns_off(parameter)}
    fields = field_names()
    named = {option.name: Keyword(option, option.name in inverse) for option in options if option.name in fields}
    return keywords | {name: keyword for name, keyword in named.items() if name not in keywords}


def field_names() -> frozenset[str]:
    """Fields of a plan, and of the options of `presim.run` and `presim.simulate`."""
    from presim.composition.plan import Plan
    from presim.evaluation.options import RunOptions, SimulateOptions

    options = {field.name for values in (RunOptions, SimulateOptions) for field in dataclasses.fields(values)}
    return frozenset({*Plan.__struct_fields__, *options} - _OTHER_FORM)


def _turns_off(parameter: click.Parameter) -> bool:
    is_switch = isinstance(parameter, click.Option) and parameter.is_flag and not parameter.secondary_opts
    return is_switch and getattr(parameter, "flag_value", True) is False


def verb_and_arguments(verb: str, arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command that a verb with arguments runs, and what remains of the arguments.

    ``network FILE`` is ``network show FILE``.
    """
    group = command_of(verb)
    if not isinstance(group, click.Group):
        return verb, arguments
    if arguments and arguments[0] in group.commands:
        return f"{verb} {arguments[0]}", arguments[1:]
    default = getattr(group, "default", "")
    return f"{verb} {default}".rstrip(), arguments
