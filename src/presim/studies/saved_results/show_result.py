"""Shows a saved result: in the terminal as its verb printed it, as blocks of data, and as an HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from presim.errors import InputError
from presim.studies.saved_results.read_result import SavedResult

if TYPE_CHECKING:
    from presim.report.blocks import Block

_MODULES_WIDTH = 160  # columns of the table, whatever the terminal has


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
        return
    from rich.console import Console

    if result.kind.widest:
        from presim.report.screen import show

        show(Console(highlight=False, markup=False, emoji=False), report, result.kind.widest)
    else:
        Console(highlight=False, markup=False, emoji=False).print(report)


def write_modules(result: SavedResult) -> None:
    """Print the peak memory of each module.

    Raises:
        InputError: the result is not of a simulated job, or holds no such peaks.
    """
    from rich.console import Console

    from presim.report.screen import show
    from presim.report.tables import module_memory_table

    peaks = result.content.memory.modules if result.kind.name == "run" else []
    if not peaks:
        raise InputError(
            f"{result.path} has no peak memory of modules: it was written by `{result.kind.verb}`, by an older presim, "
            "or its step runs no modules; name a result of `presim run --json`, or a saved job"
        )
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, _MODULES_WIDTH)
    show(console, module_memory_table(result.content), console.width)


def as_blocks(result: SavedResult) -> list[Block]:
    """The report as data."""
    from presim.report.blocks import ParagraphBlock, blocks

    partial: list[Block] = [ParagraphBlock(_partial(result))] if _is_unnamed(result) else []
    return [*partial, *blocks(result.shown("render"))]


def as_json(result: SavedResult) -> bytes:
    """The result in this version's schema, whatever version wrote it; some reports have the order of its keys."""
    return msgspec.json.format(msgspec.json.encode(result.content), indent=2) + b"\n"


def page(result: SavedResult) -> str:
    """The result as a self-contained HTML page: the verb's own, or one made of the blocks."""
    if result.kind.page and not _is_unnamed(result):
        text: str = result.shown("page")
        return text
    from presim.report import sections
    from presim.report.blocks import HeadingBlock

    content = as_blocks(result)
    first = content[0] if content and isinstance(content[0], HeadingBlock) and content[0].level == 1 else None
    title, remark = (first.name, first.caption) if first else (result.path.name, result.kind.verb)
    return sections.page(title, remark, content[1:] if first else content)


def _is_unnamed(result: SavedResult) -> bool:
    """Whether a result is partial and its own report does not say so."""
    return bool(result.partial) and not result.kind.names_partial


def _partial(result: SavedResult) -> str:
    return f"partial: {result.partial.removeprefix('partial: ')}"
