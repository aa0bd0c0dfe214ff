"""Verbs that take a command of the user's behind ``--``."""

from __future__ import annotations

import click


class CommandBehind(click.Command):
    """What stands behind ``--`` is the user's command, and goes through untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options of ours, then the command."""
        if "--" in args:
            at = args.index("--")
            args, ctx.obj = args[:at], args[at + 1 :]
        return super().parse_args(ctx, args)
