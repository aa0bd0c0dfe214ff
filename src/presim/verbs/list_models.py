"""The models that are known by name, and which verbs take each (`presim models`)."""

from __future__ import annotations

import json
import textwrap
from typing import Annotated, Literal

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

from presim.errors import InputError
from presim.system.files.field_docs import doc
from presim.units import count

_LEAST = {"weights": 9, "layers": 14, "for": 8}  # columns of the terminal
_WIDE = 120  # columns from which the layers have a column of their own
_TRAINING, _SERVING = ("compose", "search", "graph"), ("serve", "deploy", "prefill")


class ModelEntry(msgspec.Struct, frozen=True):
    """A model that is known by name."""

    name: Annotated[str, doc("Its name.")]
    parameters: Annotated[int | None, doc("Parameters; null for models that generate no text.")]
    layers: Annotated[str, doc("Number and kinds of its layers; empty for models that generate no text.")]
    checkpoint: Annotated[str, doc("Data type of its published weights; empty likewise.")]
    context_tokens: Annotated[int | None, doc("Longest sequence; null likewise.")]
    verbs: Annotated[list[str], doc("Verbs that take the name.")]


class ModelList(msgspec.Struct, frozen=True):
    """The answer of `presim models`."""

    models: Annotated[list[ModelEntry], doc("By name.")]
    schema_version: Annotated[int, doc("Version of this schema.")] = 1
    kind: Annotated[str, doc("Kind of the result.")] = "models"


def list_models(word: str = "") -> ModelList:
    """All models whose name has a word in it, by name.

    Raises:
        InputError: none has it.
    """
    from presim.composition.graph.take import named_models
    from presim.serving import model_lookup

    trained = set(named_models())
    names = sorted(name for name in trained.union(model_lookup.names()) if word.lower() in name)
    if not names:
        raise InputError(f"no model has {word!r} in its name; `presim models` lists all, and a config.json is one, too")
    return ModelList([_entry(name, is_trained=name in trained) for name in names])


def _entry(name: str, *, is_trained: bool) -> ModelEntry:
    from presim.serving import model_lookup

    trained_by = _TRAINING if is_trained else ()
    try:
        shape = model_lookup.find(name)
    except InputError:  # an encoder, which generates no text
        return ModelEntry(name, None, "", "", None, [*trained_by])
    verbs = [*trained_by, *_SERVING]
    return ModelEntry(name, shape.parameters, shape.text, shape.checkpoint.text, shape.longest, verbs)


def render(content: ModelList) -> RenderableType:
    """The models as a table."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "parameters", "context", "weights", "layers", "for"):
        is_number = column in ("parameters", "context")
        is_kept = is_number or column == "name"  # in one line, so that the others are wrapped
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(column, justify=justify, no_wrap=is_kept, min_width=_LEAST.get(column))
    for entry in content.models:
        *figures, verbs = _figures(entry)
        table.add_row(*figures, entry.layers, verbs)
    return table


def write(content: ModelList) -> None:
    """Print the table; on a narrow terminal, the layers of a model in the line below it."""
    console = Console(highlight=False, markup=False, emoji=False)
    if console.width >= _WIDE:
        console.print(render(content))
        return
    rows = [("name", "parameters", "context", "weights", "for"), *map(_figures, content.models)]
    name, _, context, weights, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    layers_by_row = ["", *(entry.layers for entry in content.models)]
    for row, layers in zip(rows, layers_by_row, strict=True):
        line = f"{row[0]:<{name}}  {row[1]:>10}  {row[2]:>{context}}  {row[3]:<{weights}}  {row[4]}"
        console.print(line.rstrip(), soft_wrap=True, style="bold" if row is rows[0] else "")
        for part in textwrap.wrap(layers, console.width - 2):
            console.print(f"  {part}", soft_wrap=True, style="dim")


def _figures(entry: ModelEntry) -> tuple[str, str, str, str, str]:
    """Name, parameters, longest sequence, type of weights and verbs, as words."""
    return (
        entry.name,
        count(entry.parameters) if entry.parameters else "",
        f"{entry.context_tokens:,}" if entry.context_tokens else "",
        entry.checkpoint.partition(" (")[0],
        ", ".join(verbs[0] for verbs in (_TRAINING, _SERVING) if verbs[0] in entry.verbs),
    )


def encode(content: ModelList) -> bytes:
    """The models as JSON with sorted keys."""
    return (json.dumps(msgspec.to_builtins(content), indent=1, sort_keys=True) + "\n").encode()
