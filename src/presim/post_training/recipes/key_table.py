"""A framework's keys: which field of a request each sets, and which change no time."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from collections.abc import Callable, Collection, Mapping
from typing import Any

from presim.errors import InputError
from presim.system.files import shortened

_SLIP = 0.92  # of the letters of two keys of a section, above which the one is taken for a slip of the other


@dataclasses.dataclass(frozen=True)
class Key:
    """What one key says."""

    field: str  # of `presim.post_training.rl_request.RlRequest`, engine.NAME of an engine's plan, or a name of `Facts`
    read: Callable[[Any], Any] = lambda value: value
    default: Any = None  # the framework's own, where the recipe is silent; None: presim's


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a recipe says, by field, and which of its keys were not understood."""

    framework: str
    facts: Mapping[str, Any]
    ignored: tuple[str, ...]
    unsimulated: tuple[str, ...] = ()  # key=value of those that change time or memory and that no simulation has


@dataclasses.dataclass(frozen=True)
class Framework:
    """A framework's recipes."""

    name: str
    keys: Mapping[str, Key]
    no_effect: tuple[str, ...]  # patterns of keys that change no time: data, logs, learning rates
    refused: Mapping[str, Callable[[Any], str]]  # key: why its value cannot be simulated; empty: it can
    always: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # facts that no key sets
    # Patterns of keys that change time or memory and have no simulation, each with whether a value does.
    unsimulated: Mapping[str, Callable[[Any], bool]] = dataclasses.field(default_factory=dict)
    required: tuple[str, ...] = ("*",)  # patterns of keys of which a recipe of reinforcement learning has some
    # Patterns of keys that say a fact beside their own, where no key names it: whether a value does, fact, its value.
    implied: Mapping[str, tuple[Callable[[Any], bool], str, Any]] = dataclasses.field(default_factory=dict)
    # Beginnings of keys whose ends are names of the recipe's own: which fact has their values by these names.
    tables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def recipe(self, settings: Mapping[str, Any], named: Collection[str]) -> Recipe:
        """What flat settings mean; those that are not among ``named`` are inherited, and need not be understood.

        Raises:
            InputError: a key looks like a slip of one that counts, a value cannot be simulated, or no key is of
                reinforcement learning.
        """
        if not any(fnmatch.filter(settings, pattern) for pattern in self.required):
            raise InputError(
                f"no key of the recipe is of {self.name}'s reinforcement learning ({', '.join(self.required)}); name "
                "another file"
            )
        facts = {key.field: key.default for key in self.keys.values() if key.default is not None} | dict(self.always)
        ignored, unsimulated = [], []
        for name, value in settings.items():
            if value is None:
                continue
            if start := next((start for start in self.tables if name.startswith(start)), None):
                facts.setdefault(self.tables[start], {})[name.removeprefix(start)] = value
                continue
            if name not in self.keys and (pattern := self._pattern(name)):
                if self._changes(pattern, value):
                    unsimulated.append(f"{name}={shortened(str(value))}")
                continue
            if reason := self.refused[name](value) if name in self.refused else "":
                raise InputError(f"{name}={shortened(str(value))}: {reason}")
            if name in self.keys:
                facts[self.keys[name].field] = self._read(name, value)
            elif name in named and name not in (*self.no_effect, *self.refused):
                self._check_spelling(name)
                if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.no_effect):
                    ignored.append(name)
        return Recipe(self.name, facts | self._implied(settings), tuple(ignored), tuple(unsimulated))

    def _implied(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Facts that no key names and that others imply."""
        named = {name: value for name, value in settings.items() if value is not None}
        fields = {self.keys[name].field for name in named if name in self.keys}
        return {
            field: value
            for pattern, (implies, field, value) in self.implied.items()
            if field not in fields and any(implies(named[name]) for name in fnmatch.filter(named, pattern))
        }

    def _pattern(self, name: str) -> str | None:
        """The pattern of keys without a simulation that a name is of."""
        return next((pattern for pattern in self.unsimulated if fnmatch.fnmatchcase(name, pattern)), None)

    def _changes(self, pattern: str, value: Any) -> bool:
        """Whether a value of a key without a simulation changes time or memory; one that is not understood may."""
        try:
            return self.unsimulated[pattern](value)
        except (TypeError, ValueError, KeyError):
            return True

    def _read(self, name: str, value: Any) -> Any:
        try:
            return self.keys[name].read(value)
        except UnknownWordError as error:
            raise InputError(f"{name}: {error}") from error
        except (TypeError, ValueError, KeyError) as error:
            raise InputError(
                f"{name} has a value that is not understood, {shortened(str(value))!r}; correct it"
            ) from error

    def _check_spelling(self, name: str) -> None:
        parent, dot, last = name.rpartition(".")
        siblings = [key.removeprefix(parent + dot) for key in self.keys if key.rpartition(".")[0] == parent]
        if matches := difflib.get_close_matches(last, siblings, 1, _SLIP):
            raise InputError(f"{self.name} has no key {shortened(name)!r}; did you mean {parent}{dot}{matches[0]}?")


class UnknownWordError(ValueError):
    """A word that is none of those that are simulated; the message is a part of a sentence about its key."""


def choice(words: Mapping[str, Any]) -> Callable[[Any], Any]:
    """A reader of one of these words."""

    def read(value: Any) -> Any:
        if str(value) not in words:
            raise UnknownWordError(f"{shortened(repr(str(value)))} is not simulated; there are {', '.join(words)}")
        return words[str(value)]

    return read


def truth(value: Any) -> bool:
    """A switch: of YAML, or as Hydra's command line writes it."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False, "1": True, "0": False}[str(value).lower()]


def inverted(value: Any) -> bool:
    """The opposite of a switch."""
    return not truth(value)


def recomputation(value: Any) -> str:
    """Whether blocks are recomputed, of a switch."""
    return "full" if truth(value) else "none"


def whole(value: Any) -> int:
    """A whole number."""
    return int(str(value))


def real(value: Any) -> float:
    """A number."""
    return float(str(value))


def largest(value: Any) -> int:
    """The largest whole number of a list, of YAML or as a command line writes it."""
    numbers = value if isinstance(value, list | tuple) else str(value).strip("[]").split(",")
    return max(whole(number) for number in numbers)


def is_positive(value: Any) -> bool:
    """Whether a coefficient counts."""
    return real(value) > 0


def above(number: float) -> Callable[[Any], bool]:
    """A reader of whether a value is larger."""
    return lambda value: real(value) > number


def unlike(*words: str) -> Callable[[Any], bool]:
    """A reader of whether a value is none of these words, whatever their case."""
    return lambda value: str(value).lower() not in words


def anything(_: Any) -> bool:
    """Any value changes something."""
    return True


def granularity(value: Any) -> str:
    """Whether blocks are recomputed, of Megatron's word; selective recomputation is of attention alone."""
    return {"full": "full", "selective": "none", "none": "none"}[str(value).lower()]


# Estimators that differ from GRPO in arithmetic over a batch alone.
_ALIKE = ("gspo", "cispo", "grpo_vectorized", "grpo_passk", "gpg", "gdpo", "opo", "optimal_token_baseline")
_ESTIMATORS = dict.fromkeys(_ALIKE, "grpo") | {
    "grpo": "grpo",
    "gae": "ppo",
    "ppo": "ppo",
    "rloo": "rloo",
    "reinforce_plus_plus": "reinforce",
    "reinforce_plus_plus_baseline": "reinforce",
    "rloo_vectorized": "rloo",
}
estimator = choice(_ESTIMATORS)
engine_kernels = choice({"vllm": "vllm", "sglang": "sglang"})
