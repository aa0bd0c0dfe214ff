"""Helpers shared by terminal reports: printing and title."""

from __future__ import annotations

import dataclasses

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.rule import Rule
from rich.text import Text

_COMMAND_LINES = 2  # lines of a long command; JSON has the whole command


def show(console: Console, report: RenderableType, widest: int) -> None:
    """Print a report as wide as the terminal, at most ``widest``. Lines to files have no trailing spaces."""
    width = min(widest, console.width)
    if console.is_terminal:
        console.print(report, width=width)
        return
    with console.capture() as printed:
        console.print(report, width=width)
    console.file.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


@dataclasses.dataclass(frozen=True)
class Heading:
    """The name of a section with a caption beside it."""

    name: str
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble("\n", (self.name, "bold bright_blue"), "  ", (self.caption, "dim"))


@dataclasses.dataclass(frozen=True)
class Title:
    """A command with its cluster to the right. A long command is on the next two lines, cut if necessary."""

    command: str
    location: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, name, command = options.max_width, Text("presim", "bold"), Text(self.command)
        long = name.cell_len + 1 + command.cell_len + 2 + len(self.location) > width
        head = name if long else Text.assemble(name, " ", command)
        gap = max(width - head.cell_len - len(self.location), 2)
        yield Text.assemble(head, " " * gap, self.location)
        if long:
            yield from _cut(command, console, width)
        yield Rule(style="dim")


def _cut(command: Text, console: Console, width: int) -> list[Text]:
    lines = list(command.wrap(console, width, overflow="fold"))
    if len(lines) > _COMMAND_LINES:
        lines = lines[:_COMMAND_LINES]
        lines[-1].rstrip()
        lines[-1].truncate(width - 2)
        lines[-1].append(" …")
    return lines
