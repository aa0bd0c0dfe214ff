"""Settings by name, as files and command lines of trainers have them, and which of them were asked for."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.errors import InputError
from presim.system.files import FormatError, decode_settings_json, decode_toml, decode_yaml, read_bytes, read_text

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "", "none", "null")
_MOST_NAMED = 20
_UNSAID = re.compile("\0([^\0]*)\0")  # as `presim.composition.launch_scripts.bash_values` marks it


class Settings:
    """Values by name, those of inner mappings as ``outer.inner``; `taken` collects the names that were asked for.

    Settings without a value (``null``) count as absent.
    """

    def __init__(self, values: Mapping[str, Any], origin: str) -> None:
        self.values = dict(_leaves(values))
        self.origin = origin
        self.taken: set[str] = set()

    def value(self, *names: str) -> Any:  # as the file has it
        """The first of the names that is set; None: none is.

        Raises:
            InputError: a script takes it from elsewhere.
        """
        self.taken.update(names)
        name = next((name for name in names if name in self.values), None)
        if name is None:
            return None
        if unsaid := _UNSAID.search(str(self.values[name])):
            raise InputError(
                f"{name} of {self.origin} is {unsaid[1]}, which the script does not say; give it: --from 'NAME=VALUE "
                "SCRIPT ARGUMENT …'"
            )
        return self.values[name]

    def text(self, *names: str) -> str | None:
        """A word; None: not set."""
        value = self.value(*names)
        return None if value is None else str(value)

    def switch(self, *names: str, default: bool = False) -> bool:
        """Whether a switch is on.

        Raises:
            InputError: it is neither on nor off.
        """
        value = self.value(*names)
        if value is None:
            return default
        word = str(value).lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise InputError(f"{self.named(names)} of {self.origin} is {value!r}, neither true nor false; correct it")

    def number(self, *names: str) -> int | None:
        """A whole number; None: not set, or left to be set (``auto``).

        Raises:
            InputError: it is none.
        """
        value = self.value(*names)
        if value is None or value == "auto":
            return None
        try:
            number = float(str(value).replace("_", ""))
        except ValueError:
            number = 0.5
        if number != int(number):
            raise InputError(f"{self.named(names)} of {self.origin} is {value!r}, and no whole number; correct it")
        return int(number)

    def size(self, name: str) -> int | None:
        """A number of nodes or GPUs; None: not set, or by whoever starts the launch."""
        is_said = not _UNSAID.search(str(self.values.get(name, "")))
        self.taken.add(name)
        return self.number(name) if is_said else None

    def named(self, names: Sequence[str]) -> str:
        """The name among several that is set."""
        return next((name for name in names if name in self.values), names[0])

    def inner(self, name: str) -> dict[str, Any]:
        """All settings within a mapping, by their names there."""
        prefix = f"{name}."
        inner_values = {key[len(prefix) :]: value for key, value in self.values.items() if key.startswith(prefix)}
        self.taken.update(f"{prefix}{key}" for key in inner_values)
        self.taken.add(name)
        return inner_values

    def refuse(self, reasons: Mapping[str, str], overridden: Sequence[str] = ()) -> None:
        """Refuse settings that make another step than presim can show; ``overridden``: names not to look at.

        Raises:
            InputError: one of them is on.
        """
        for name, reason in reasons.items():
            value = self.value(name)
            if name not in overridden and str(value).lower() not in _FALSE and value not in ([], {}):
                raise InputError(f"{self.origin} has {name}: {_shown(value)}: {reason}")

    @staticmethod
    def has_no_effect(name: str, without_effect: Sequence[str]) -> bool:
        """Whether a name is one of those that change no step."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in without_effect)

    def unread_note(self, without_effect: Sequence[str]) -> list[str]:
        """A sentence that names the settings that nobody asked for, but those that change no step."""
        names = [
            name
            for name, value in self.values.items()
            if name not in self.taken
            and str(value).lower() not in _FALSE
            and not self.has_no_effect(name, without_effect)
        ]
        others_text = f" and {len(names) - _MOST_NAMED} others" if len(names) > _MOST_NAMED else ""
        listed_names = ", ".join(names[:_MOST_NAMED])
        return [f"Settings that are not understood, and left out: {listed_names}{others_text}."] if names else []


def read_settings(path: Path, kind: str) -> dict[str, Any]:
    """The mapping that a YAML, JSON or TOML file holds. ``kind``: of file, for errors.

    Raises:
        InputError: it cannot be read, or holds no mapping.
    """
    try:
        if path.suffix == ".toml":
            return decode_toml(read_text(path, f"name another {kind}"))
        if path.suffix == ".json":
            values = decode_settings_json(read_bytes(path, f"name another {kind}"))
        else:
            values = decode_yaml(read_text(path, f"name another {kind}"))
    except FormatError as error:
        raise InputError(f"{path} is no {kind}: {error}; correct it") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} is no {kind}: it has no settings; name another file")
    return values


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            leaves += _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            leaves.append((f"{prefix}{name}", value))
    return leaves


def _shown(value: object) -> str:
    return json.dumps(value, default=str) if isinstance(value, bool | list) else str(value)
