"""The forms of questions, made of the declarations of their verbs."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import msgspec

from presim.app.questions import question
from presim.cli.declared import Declaration, declarations


class FieldGroup(msgspec.Struct, frozen=True):
    """Fields of a form under a heading."""

    name: str
    fields: list[Declaration]


class Form(msgspec.Struct, frozen=True):
    """A question as a page shows it."""

    name: str
    title: str
    summary: str
    groups: list[FieldGroup]
    other_fields: list[Declaration]
    start: dict[str, str]
    changes: list[dict[str, Any]]
    what_if: dict[str, str]  # values of every what-if
    suggestions: dict[str, list[str]]  # by option


@functools.cache
def form_of(name: str) -> Form:
    """The form of a question, from the verb's declarations.

    Raises:
        InputError: there is no such question.
    """
    subject = question(name)
    defaults, hints = _defaults(name), dict(subject.hints)
    declared = {
        field.name: msgspec.structs.replace(
            field,
            is_required=field.is_required or field.name in subject.needs,
            default=field.default or defaults.get(field.name, ""),
            help=field.help or hints.get(field.name, ""),
        )
        for field in declarations(name)
        if field.name not in subject.omitted
    }
    groups = [
        FieldGroup(title, [declared.pop(field) for field in fields if field in declared])
        for title, fields in subject.groups
    ]
    shown = [dataclasses.asdict(change) for change in subject.changes]
    return Form(
        subject.name,
        subject.title,
        subject.summary,
        groups,
        list(declared.values()),
        dict(subject.start),
        shown,
        dict(subject.what_if),
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
    from presim.serving import model_lookup

    return {
        "model": model_lookup.names() if name in ("serve", "deploy") else list(named_models()),
        "words": model_lookup.names() if name == "rl" else list(named_models()),
        **{field: catalogue.ids(kind) for field, kind in (("gpu", Gpu), ("node", Node), ("fabric", Fabric))},
        "gpus": catalogue.ids(Gpu),
    }
