"""What people ask in the app: each question is a verb of the command line, with the options that matter first."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import msgspec

from presim.cli.declared import Declaration, declarations
from presim.errors import InputError


@dataclasses.dataclass(frozen=True)
class Change:
    """A control of a what-if: it sets one option of the base's command."""

    field: str
    label: str
    words: tuple[str, ...] = ()  # of a list to choose from; empty: the option's own choices
    factors: tuple[float, ...] = ()  # of a slider: the base's number times each
    pattern: str = "%"  # the option's value for a word; % is the word
    note: str = ""  # what the words are, beside the label


@dataclasses.dataclass(frozen=True)
class Question:
    """A question, its form and its what-if controls."""

    name: str  # the verb
    title: str
    summary: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]  # heading -> options shown first
    start: tuple[tuple[str, str], ...] = ()  # values of a new form
    changes: tuple[Change, ...] = ()
    apart: tuple[str, ...] = ()  # options that a form does not have: files and folders beside the result, servers
    needs: tuple[str, ...] = ()  # options without which the verb refuses, although click does not
    hints: tuple[tuple[str, str], ...] = ()  # help of arguments, which the command line describes in its text


_SHARES = tuple(f"{share:g}" for share in (0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 4))
_DEGREES = ("1", "2", "4", "8", "16", "32")
_GPUS = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "b300", "gb200", "mi300x")
_OUTPUT_FILES = ("html", "perfetto", "memory_snapshot", "chakra", "kineto", "tokens", "price_per_gpu_hour")

QUESTIONS = (
    Question(
        "compose",
        "Predict a plan",
        "Step time, memory and bottlenecks of a training job, from a model and a parallelism plan.",
        (
            ("Model", ("model",)),
            ("Cluster", ("gpu", "nodes", "gpus_per_node")),
            ("Batch", ("sequence", "micro_batch", "global_batch")),
            ("Parallelism", ("tensor", "pipeline", "context", "expert", "data_style")),
            ("Memory", ("recompute", "optimizer")),
        ),
        (("model", "llama3-8b"), ("gpu", "h100-sxm"), ("nodes", "2"), ("gpus_per_node", "8"), ("sequence", "4096")),
        (
            Change("gpu", "GPU", _GPUS),
            Change("bandwidth", "Bandwidth between nodes", _SHARES, pattern="inter=%", note="times the cluster's"),
            Change("stragglers", "Speed of node 0", _SHARES[1:6], pattern="node0=%", note="1: as the others"),
            Change("micro_batch", "Micro-batch", _DEGREES),
            Change("recompute", "Recomputation"),
            Change("tensor", "Tensor parallelism", _DEGREES[:4]),
            Change("pipeline", "Pipeline parallelism", _DEGREES[:5]),
            Change("data_style", "Data-parallel style"),
        ),
        ("like", "folder", "save", "framework", "framework_args", "precision", *_OUTPUT_FILES),
        ("gpu", "sequence"),
        (("model", "Model: a known name, a Hugging Face id in the local cache, or a file of the folder."),),
    ),
    Question(
        "serve",
        "Serve a load",
        "Latency, throughput and memory of a served model under a load of requests.",
        (
            ("Model", ("model", "weights", "cache")),
            ("Engines", ("gpu", "tp", "ep", "replicas")),
            ("Load", ("rate", "requests", "prompt", "output")),
            ("Goal", ("slo", "price_per_gpu_hour")),
        ),
        (("model", "llama3-8b"), ("gpu", "h100-sxm"), ("rate", "8")),
        (
            Change("gpu", "GPU", _GPUS),
            Change("rate", "Requests per second", factors=(0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4)),
            Change("replicas", "Replicas", ("1", "2", "3", "4", "6", "8")),
            Change("tp", "Tensor parallelism", _DEGREES[:4]),
            Change("weights", "Weights"),
            Change("cache", "KV cache"),
            Change("price_per_gpu_hour", "Price per GPU hour", ("1", "2", "3", "4", "6", "8")),
        ),
        ("html", "perfetto", "listen", "speed", "engine", "detailed", "save_workload"),
        hints=(("model", "Model: a known name, a Hugging Face id in the local cache, or a config of the folder."),),
    ),
)


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


def question(name: str) -> Question:
    """A question by name.

    Raises:
        InputError: there is none.
    """
    for candidate in QUESTIONS:
        if candidate.name == name:
            return candidate
    raise InputError(f"no question {name[:40]!r}; there are {', '.join(known.name for known in QUESTIONS)}")


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
    groups = [Group(title, [declared.pop(field) for field in fields]) for title, fields in asked.groups]
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
    from presim.compose.plan import Plan

    if name != "compose":
        return {}
    fields = msgspec.structs.fields(Plan)
    return {field.name: str(field.default) for field in fields if isinstance(field.default, str | int) and field.default}


def _suggestions(name: str) -> dict[str, list[str]]:
    from presim.graph.take import named_models
    from presim.hardware import Gpu, catalogue
    from presim.hardware.cluster import Fabric, Node
    from presim.serving import model

    return {
        "model": model.names() if name in ("serve", "deploy") else list(named_models()),
        **{field: catalogue.ids(kind) for field, kind in (("gpu", Gpu), ("node", Node), ("fabric", Fabric))},
        "gpus": catalogue.ids(Gpu),
    }
