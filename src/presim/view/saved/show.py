"""Shows a saved result: in the terminal as its verb printed it, as blocks of data, and as an HTML page."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from presim.report.blocks import Block, HeadingBlock, ParagraphBlock, blocks
from presim.report.rendering import template
from presim.report.screen import show
from presim.view.saved.read import SavedResult


def write(result: SavedResult) -> None:
    """Print the report of the verb, after a line that says so where the result is partial."""
    if _is_unnamed(result):
        click.echo(_partial(result))
    if result.kind.write:
        result.shown("write")
        return
    report = result.shown("render")
    if isinstance(report, str):
        click.echo(report)
    elif result.kind.widest:
        show(Console(highlight=False, markup=False, emoji=False), report, result.kind.widest)
    else:
        Console(highlight=False, markup=False, emoji=False).print(report)


def as_blocks(result: SavedResult) -> list[Block]:
    """The report as data."""
    partial: list[Block] = [ParagraphBlock(_partial(result))] if _is_unnamed(result) else []
    return [*partial, *blocks(result.shown("render"))]


def page(result: SavedResult) -> str:
    """The result as a self-contained HTML page: the verb's own, or one made of the blocks."""
    if result.kind.page and not _is_unnamed(result):
        text: str = result.shown("page")
        return text
    content = as_blocks(result)
    first = content[0] if content and isinstance(content[0], HeadingBlock) and content[0].level == 1 else None
    return template(Path(__file__).with_name("page.html.jinja")).render(
        title=first.name if first else result.path.name,
        remark=first.caption if first else result.kind.verb,
        blocks=content[1:] if first else content,
    )


def _is_unnamed(result: SavedResult) -> bool:
    """Whether a result is partial and its own report does not say so."""
    return bool(result.partial) and not result.kind.names_partial


def _partial(result: SavedResult) -> str:
    return f"partial: {result.partial.removeprefix('partial: ')}"
