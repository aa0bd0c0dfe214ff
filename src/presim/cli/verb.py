"""The click classes of verbs: options in groups, the common ones under ``--help``, all under ``--help-all``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from presim.cli.help_groups import HEADINGS, common_flags, heading_of
from presim.cli.option_needs import check_needs
from presim.cli.progress import working

_ALL = "presim.all_options"  # key of a context's meta: the help shows all options


def longest_flag(option: click.Parameter) -> str:
    """The flag that stands for an option in tables.

    >>> longest_flag(click.Option(["-q", "--quiet"]))
    '--quiet'
    """
    return max(option.opts, key=len)


def show_all(context: click.Context) -> None:
    """Let the help of a context show all options."""
    context.meta[_ALL] = True


def _print_all(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        show_all(context)
        click.echo(context.get_help(), color=context.color)
        context.exit()


class Verb(click.Command):
    """A command whose help has its options in groups."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """As click's, with ``--help-all`` behind ``--help``."""
        return [*super().get_params(ctx), _help_all(len(self.params))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings; without ``--help-all`` only the common ones."""
        verb = ctx.command_path.partition(" ")[2]
        options = [parameter for parameter in self.params if isinstance(parameter, click.Option)]
        common = frozenset[str]() if ctx.meta.get(_ALL) else common_flags(verb)
        shown = [option for option in options if not common or longest_flag(option) in common]
        for heading in HEADINGS:
            group = [option for option in shown if heading_of(verb, longest_flag(option)) == heading]
            _write(ctx, formatter, heading, sorted(group, key=_rank))
        helps: list[click.Parameter] = [option for option in (self.get_help_option(ctx),) if option is not None]
        _write(ctx, formatter, "Help", [*helps, *([_help_all(len(options))] if len(shown) < len(options) else [])])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb, unless an option would change nothing; while it works, lines on standard error say so."""
        check_needs(ctx)
        is_server = ctx.params.get("listen") is not None or "port" in ctx.params
        with working(f"{ctx.command_path.partition(' ')[2]} works", bool(ctx.params.get("quiet")) or is_server):
            return super().invoke(ctx)


class VerbGroup(click.Group):
    """A verb with verbs below it; words that name none are the default's: ``network FILE`` is ``network show FILE``."""

    command_class = Verb

    def __init__(self, *args: Any, default: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default's name if none is given."""
        if self.default and args and args[0] not in (*self.commands, "-h", "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """As click's, with ``--help-all``, which is ``--help`` here."""
        return [*super().get_params(ctx), _help_all(0)]


def _help_all(count: int) -> click.Option:
    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=not count,
        callback=_print_all,
        help=f"Show all {count} options.",
    )


def _rank(option: click.Option) -> int:
    """The place of an option below its heading."""
    order = [flag for flags in HEADINGS.values() for flag in flags.split()]
    return order.index(longest_flag(option))


def _write(ctx: click.Context, formatter: click.HelpFormatter, heading: str, options: Iterable[Any]) -> None:
    records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(heading):
            formatter.write_dl(records)
