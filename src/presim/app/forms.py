"""The forms of questions, made of the declarations of their verbs."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import msgspec

from presim.app.questions import question
from presim.cli.declared import Declaration, declarations


class Group(msgspec.Struct, frozen=True):
    """Fields of a form under a heading."""

    name: str
    fields: list[Declaration]


class Form(msgspec.Struct, frozen=True):
    """A question as a page shows it."""

    name: str
    title: str
    summary: str
    groups: list[Group]
    more: list[Declaration]
    start: dict[str, str]
    changes: list[dict[str, Any]]
    suggestions: dict[str, list[str]]  # by option


@functools.cache
def form_of(name: str) -> Form:
    """The form of a question, from the verb's declarations.

    Raises:
        InputError: there is no such question.
    """
    asked = question(name)
    defaults, hints = _defaults(name), dict(asked.hints)
    declared = {
        field.name: msgspec.structs.replace(
            field,
            is_required=field.is_required or field.name in asked.needs,
            default=field.default or defaults.get(field.name, ""),
            help=field.help or hints.get(field.name, ""),
        )
        for field in declarations(name)
        if field.name not in asked.apart
    }
    groups = [
        Group(title, [declared.pop(field) for field in fields if field in declared]) for title, fields in asked.groups
    ]
    shown = [dataclasses.asdict(change) for change in asked.changes]
    return Form(
        asked.name,
        asked.title,
        asked.summary,
        groups,
        list(declared.values()),
        dict(asked.start),
        shown,
        _suggestions(name),
    )


def _defaults(name: str) -> dict[str, str]:
    """Defaults that the command line leaves to the plan."""
    from presim.composition.plan import Plan

    if name != "compose":
        return {}
    fields = msgspec.structs.fields(Plan)
    return {
        field.name: str(field.default) for field in fields if isinstance(field.default, str | int) and field.default
    }


def _suggestions(name: str) -> dict[str, list[str]]:
    from presim.composition.graph.take import named_models
    from presim.hardware import Gpu, catalogue
    from presim.hardware.cluster import Fabric, Node
    from presim.serving import model

    return {
        "model": model.names() if name in ("serve", "deploy") else list(named_models()),
        "words": list(named_models()),
        **{field: catalogue.ids(kind) for field, kind in (("gpu", Gpu), ("node", Node), ("fabric", Fabric))},
        "gpus": catalogue.ids(Gpu),
    }
