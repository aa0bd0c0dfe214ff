"""Comparison of a composed job with a captured one: a table on standard output, or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from presim.composition.capture_comparison import Agreement, ComparedFigure

_MOST = 20  # differences that are printed


def encode(agreement: Agreement) -> bytes:
    """The agreement as one line of JSON."""
    return msgspec.json.encode(agreement) + b"\n"


def write(agreement: Agreement) -> None:
    """Print the agreement as tables."""
    from rich.console import Console

    Console(highlight=False, markup=False, emoji=False).print(render(agreement))


def render(agreement: Agreement) -> RenderableType:
    """The agreement as something rich can print."""
    from rich.console import Group

    parts: list[RenderableType] = [_figures(agreement)]
    counted = ", ".join(f"{count} {kind}s" if kind != "attention" else f"{count} attention calls"
                        for kind, count in agreement.counted.items())  # fmt: skip
    if agreement.same_work:
        parts.append(f"Device work of the last step is equal: {counted or 'none'}.")
    else:
        parts.append(f"Captured: {counted}. {len(agreement.differences)} signatures have different counts:")
        parts.append(_differences(agreement))
        left_out = len(agreement.differences) - _MOST
        if left_out > 0:
            parts.append(f"{left_out} more; --json - has all of them.")
    if agreement.turns:
        turn = agreement.turns[0]
        parts.append(
            f"Collectives come in another order on {len(agreement.turns)} ranks, first number {turn.index + 1} of rank "
            f"{turn.rank}: {turn.captured} captured, {turn.composed} composed."
        )
    elif "collective" in agreement.counted:
        parts.append("Collectives come in the same order.")
    return Group(*parts)


def _figures(agreement: Agreement) -> Table:
    from rich.table import Table

    table = Table(box=None)
    table.add_column("")
    for title in ("captured", "composed", "difference"):
        table.add_column(title, justify="right")
    for figure in agreement.figures:
        table.add_row(
            figure.name, _value(figure, figure.captured), _value(figure, figure.composed), f"{figure.error:+.2%}"
        )
    return table


def _differences(agreement: Agreement) -> Table:
    from rich.table import Table

    table = Table(box=None)
    table.add_column("rank", justify="right")
    table.add_column("device work")
    for title in ("captured", "composed"):
        table.add_column(title, justify="right")
    for difference in agreement.differences[:_MOST]:
        table.add_row(str(difference.rank), difference.signature, str(difference.captured), str(difference.composed))
    return table


def _value(figure: ComparedFigure, value: float) -> str:
    return f"{value / 2**30:.2f} GiB" if figure.unit == "bytes" else f"{value:.4g} s"
