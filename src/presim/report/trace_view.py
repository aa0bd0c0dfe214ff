"""Terminal and JSON views of a trace, for the verb ``trace``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.report.screen import Heading, show
from presim.trace.schema import COLUMNS, Category, Kind, Phase, Trace
from presim.trace.signatures import Signature, family
from presim.trace.trace_summary import Summary, summarize
from presim.units import gib, seconds

SIGNATURES = 15  # shown in the terminal
WIDTH = 120


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An entry as text, with names instead of indices and without empty fields."""

    index: int
    kind: str
    stream: int
    host_ns: int
    signature: Signature | None = None
    phase: str = ""
    object: int | None = None  # of an entry without a signature
    value: int | None = None
    category: str = ""
    operator: str = ""
    scope: str = ""
    site: str = ""


class TraceView(msgspec.Struct, frozen=True):
    """The answer of `presim trace`."""

    summary: Summary
    entries: list[Entry]
    script: str = ""
    schema: str = "presim-trace-view/1"


def view(trace: Trace, entries: slice | None = None) -> TraceView:
    """The summary of a trace, and the selected entries."""
    return TraceView(summarize(trace), entry_rows(trace, entries) if entries else [], trace.manifest.script)


def encode(content: TraceView) -> bytes:
    """The summary and the selected entries as JSON with sorted keys."""
    return msgspec.json.format(msgspec.json.encode(content, order="sorted"), indent=2) + b"\n"


def write(content: TraceView, file: IO[str] | None = None, *, console: Console | None = None) -> None:
    """Print the summary and the selected entries."""
    console = console or Console(file=file, highlight=False, markup=False, emoji=False)
    show(console, render(content), WIDTH)


def render(content: TraceView) -> RenderableType:
    """The summary as something rich can print."""
    summary = content.summary
    parts: list[RenderableType] = [_head(summary, content.script), _section("Streams", _streams(summary))]
    if summary.collectives:
        parts.append(_section("Collectives", _collectives(summary)))
    num_omitted = len(summary.signatures) - SIGNATURES
    title = f"Signatures  {len(summary.signatures)}" + (f", the {SIGNATURES} most frequent" if num_omitted > 0 else "")
    parts.append(_section(title, _signatures(summary)))
    if summary.unmodelled_calls:
        calls = ", ".join(f"{name} {count}x" for name, count in sorted(summary.unmodelled_calls.items()))
        parts.append(_section("Calls without semantics", Text(calls)))
    if summary.notes:
        parts.append(_section("Notes", Group(*(Text(f"- {note}") for note in summary.notes))))
    if content.entries:
        parts.append(_section("Entries", _entries(content.entries)))
    return Group(*parts)


def entry_rows(trace: Trace, entries: slice) -> list[Entry]:
    """The selected entries."""
    rows = []
    for index in range(*entries.indices(len(trace))):
        row = {name: int(trace.columns[name][index]) for name in COLUMNS}
        rows.append(Entry(index=index, **_in_words(trace, row)))
    return rows


def _in_words(trace: Trace, row: dict[str, int]) -> dict[str, Any]:
    kind = Kind(row["kind"])
    words: dict[str, Any] = {"kind": kind.name.lower(), "stream": row["stream"], "host_ns": row["host_ns"]}
    if row["signature"] >= 0:
        words["signature"] = trace.signatures[row["signature"]]
        words["phase"] = Phase(row["phase"]).name.lower()
    else:
        words |= {"object": row["object"], "value": row["value"]}
    if kind is Kind.RETAG and row["value"] in list(Category):
        words["category"] = Category(row["value"]).name.lower()
    if row["operator"] >= 0:
        words["operator"] = trace.operators[row["operator"]]
    if row["scope"] >= 0:
        words["scope"] = trace.scopes[row["scope"]]
    if row["site"] >= 0:
        words["site"] = trace.sites[row["site"]]
    return words


def _head(summary: Summary, script: str) -> RenderableType:
    counts = ", ".join(
        f"{count} {kind}" for kind, count in sorted(summary.kinds.items(), key=lambda item: (-item[1], item[0]))
    )
    in_order = [phase.name.lower() for phase in Phase if phase.name.lower() in summary.phases]  # files sort their keys
    phases = ", ".join(f"{summary.phases[name]} {name}" for name in in_order)
    facts = (
        ("script", script or "none"),
        (
            "captured",
            f"rank {summary.rank} of {summary.world_size} on {summary.gpu}, ended: {summary.exit}",
        ),
        ("entries", f"{summary.entries} in {summary.steps} steps, {seconds(summary.host_ns / 1e9)} of host time"),
        ("kinds", counts),
        ("device work", phases),
    )
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, text in facts:
        table.add_row(Text(name, "dim"), Text(text))
    return table


def _streams(summary: Summary) -> Table:
    table = _table("stream", "priority", "work", "collectives", "waits")
    for row in summary.streams:
        table.add_row(*(str(value) for value in (row.stream, row.priority, row.work, row.collectives, row.waits)))
    return table


def _collectives(summary: Summary) -> Table:
    table = _table("kind", "group", "ranks", "type", "calls", "bytes")
    for row in summary.collectives:
        table.add_row(row.kind, row.group, str(row.group_size), row.dtype, str(row.count), gib(row.bytes))
    return table


def _signatures(summary: Summary) -> Table:
    table = _table("count", "family", "signature")
    for row in summary.signatures[:SIGNATURES]:
        table.add_row(str(row.count), row.family, _fields(row.signature))
    return table


def _entries(entries: Sequence[Entry]) -> Table:
    table = _table("entry", "stream", "host", "what", "operator", "module")
    for entry in entries:
        if entry.signature is not None:
            work = f"{entry.phase} {family(entry.signature)} {_fields(entry.signature)}"
        else:
            work = f"{entry.kind} {entry.object or 0:#x} {entry.category or entry.value}"
        host = seconds(entry.host_ns / 1e9)
        table.add_row(str(entry.index), str(entry.stream), host, work, entry.operator, entry.scope)
    return table


def _fields(signature: Signature) -> str:
    """The fields that are not at their defaults."""
    values = msgspec.structs.asdict(signature)
    defaults = {field.name: field.default for field in msgspec.structs.fields(signature)}
    return " ".join(f"{name}={value}" for name, value in values.items() if value != defaults[name])


def _section(title: str, content: RenderableType) -> RenderableType:
    return Group(Heading(title), Padding(content, (0, 0, 0, 2)))


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    left_aligned = {"kind", "group", "type", "family", "signature", "what", "operator", "module"}
    for name in names:
        table.add_column(name, justify="left" if name in left_aligned else "right", overflow="fold")
    return table
