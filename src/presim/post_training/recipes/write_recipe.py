"""Write a job in the keys of a framework: those settings that it reads back as the same job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from presim.errors import InputError
from presim.post_training.recipes.frameworks import FRAMEWORKS
from presim.post_training.recipes.key_table import Key
from presim.post_training.recipes.recipe_request import fields_of
from presim.post_training.recipes.written_facts import written_facts
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_request import RlRequest

# A line of a setting: Hydra's overrides, YAML, or arguments of a command.
_LINES = {"verl": "{}={}", "nemo-rl": "{}={}", "trl": "{}: {}", "slime": "--{} {}", "openrlhf": "--{} {}"}
WRITTEN = tuple(_LINES)
# Words of keys whose values presim calls otherwise.
_WORDS = (
    True, False, "fsdp2", "megatron", "fsdp", "vllm", "sglang", "grpo", "gae", "rloo", "reinforce_plus_plus", 0.01, 0.0,
    "colocate", "server", "fp8", "auto", "R3", "disabled",
    "group_norm", "model",
)  # fmt: skip
# Fields that no recipe has, or that follow from others.
_BESIDE = (
    "model",
    "prompt_tokens",
    "response",
    "steps",
    "seed",
    "force",
    "cp",
    "gpus",
    "engine",
    "reference",
    "critic",
)


def check(framework: str) -> None:
    """Raise InputError if no jobs are written for a framework."""
    if framework not in WRITTEN:
        raise InputError(f"placements are written for {', '.join(WRITTEN)}, not {framework!r}; choose one of them")


@dataclasses.dataclass(frozen=True)
class WrittenJob:
    """Lines of a framework's settings, and which fields of the job they do not say."""

    lines: list[str]
    unsaid: tuple[str, ...]


def settings_for(framework: str, request: RlRequest, job: RlJob) -> WrittenJob:
    """A line for each of the framework's keys that the job sets, in the order of its table.

    Raises:
        InputError: the framework is not written, or has no words for the job.
    """
    check(framework)
    facts = written_facts(framework, request, job)
    settings: dict[str, Any] = {}
    fields: set[str] = set()  # of several keys for one, the first
    for name, key in FRAMEWORKS[framework].keys.items():
        value = facts.get(key.field)
        if value is not None and key.field not in fields:
            fields.add(key.field)
            if framework in ("verl", "nemo-rl") or value != key.default:
                settings[name] = _word(framework, name, key, value)
    return WrittenJob(_lines(framework, settings), _unsaid(framework, settings, request, job))


def _lines(framework: str, settings: Mapping[str, Any]) -> list[str]:
    if framework in ("slime", "openrlhf"):  # switches are named or not
        settings = {name: "" if value is True else value for name, value in settings.items() if value is not False}
    return [_LINES[framework].format(name, _text(value)).rstrip() for name, value in settings.items()]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unsaid(framework: str, settings: Mapping[str, Any], request: RlRequest, job: RlJob) -> tuple[str, ...]:
    """Fields of the job that its settings, read back, do not have: the framework has no key, or no such value."""
    read = fields_of(framework, settings, settings.keys(), "settings", job.placement.gpus).fields
    defaults = {field.name: field.default for field in dataclasses.fields(RlRequest)}
    unsaid = []
    for name, default in defaults.items():
        value = getattr(request, name)
        if name not in _BESIDE and value not in (None, read.get(name, default)) and value != default:
            unsaid.append(name.replace("_", "-"))
    return tuple(unsaid)


def _word(framework: str, name: str, key: Key, value: Any) -> Any:
    """The first word that the framework's key reads as the value."""
    for word in (value, *_WORDS):
        try:
            if key.read(word) == value:
                return word
        except (TypeError, ValueError, KeyError):
            continue
    raise InputError(f"{framework} has no word for {name} of {value!r}; leave out --write, or choose another")
