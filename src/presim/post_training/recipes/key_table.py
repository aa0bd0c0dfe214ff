"""A framework's keys: which field of a request each sets, and which change no time."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from collections.abc import Callable, Collection, Mapping
from typing import Any

from presim.errors import InputError
from presim.system.files import shortened

_ALIKE = 0.92  # of the letters of two keys of a section, above which the one is taken for a slip of the other


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


@dataclasses.dataclass(frozen=True)
class Framework:
    """A framework's recipes."""

    name: str
    keys: Mapping[str, Key]
    no_effect: tuple[str, ...]  # patterns of keys that change no time: data, logs, learning rates
    refused: Mapping[str, Callable[[Any], str]]  # key: why its value cannot be simulated; empty: it can
    always: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # facts that no key sets

    def recipe(self, settings: Mapping[str, Any], named: Collection[str]) -> Recipe:
        """What flat settings mean; those that are not among ``named`` are inherited, and need not be understood.

        Raises:
            InputError: a key looks like a slip of one that counts, or a value cannot be simulated.
        """
        facts = {key.field: key.default for key in self.keys.values() if key.default is not None} | dict(self.always)
        ignored = []
        for name, value in settings.items():
            if value is None:
                continue
            if reason := self.refused[name](value) if name in self.refused else "":
                raise InputError(f"{name}={shortened(str(value))}: {reason}")
            if name in self.keys:
                facts[self.keys[name].field] = self._read(name, value)
            elif (
                name in named
                and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.no_effect)
                and name not in self.refused
            ):
                self._check_spelling(name)
                ignored.append(name)
        return Recipe(self.name, facts, tuple(ignored))

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
        if matches := difflib.get_close_matches(last, siblings, 1, _ALIKE):
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
