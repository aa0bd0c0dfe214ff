"""Base of verbs that accept a user's command after ``--``."""

from __future__ import annotations

import click

from presim.cli.verb import Verb


class CommandBehind(Verb):
    """A click command; everything after ``--`` is the user's command and is passed on unchanged."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse options before ``--`` and store the command after it."""
        if "--" in args:
            separator = args.index("--")
            args, ctx.obj = args[:separator], args[separator + 1 :]
        return super().parse_args(ctx, args)
