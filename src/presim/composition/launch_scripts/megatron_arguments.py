"""The words of a Megatron-LM launch as arguments by name, with the sizes of its launcher."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from presim.composition.launch_scripts.bash_values import MARK
from presim.errors import InputError

_NODES = ("--nnodes", "-N", "--nodes")
_PER_NODE = ("--nproc-per-node", "--ntasks-per-node", "--gpus-per-node")


class Arguments:
    """Values by option, such as ``--num-layers``; `taken` collects the options that were asked for."""

    def __init__(self, words: Sequence[str]) -> None:
        self.values: dict[str, list[str]] = {}
        self.taken: set[str] = set()
        name = ""
        for word in words:
            if re.match(r"--[A-Za-z]", word):
                name, equals, value = word.partition("=")
                name = name.replace("_", "-")
                self.values[name] = [value] if equals else []
            elif name:
                self.values[name].append(word)

    def has(self, name: str) -> bool:
        """Whether a switch is given."""
        self.taken.add(name)
        return name in self.values

    def text(self, name: str) -> str | None:
        """An option's value; None: not given.

        Raises:
            InputError: the script does not say the value.
        """
        if not self.has(name):
            return None
        values = self.values[name]
        if not values:
            raise InputError(f"{name} of the launch has no value; give one")
        if unsaid := MARK.search(values[0]):
            raise InputError(
                f"{name} is {unsaid[1]}, which the script does not say; give it: --from 'NAME=VALUE SCRIPT ARGUMENT …'"
            )
        return values[0].strip("'\"")

    def number(self, name: str) -> int | None:
        """A whole number.

        Raises:
            InputError: it is none.
        """
        text = self.text(name)
        try:
            return None if text is None else int(text.replace("_", ""))
        except ValueError as error:
            raise InputError(f"{name} is {text!r}, and no whole number; correct it") from error

    def count(self, name: str, default: int) -> int:
        """A whole number, or Megatron's default."""
        number = self.number(name)
        return default if number is None else number

    def real(self, name: str, default: float) -> float:
        """A number, or Megatron's default.

        Raises:
            InputError: it is none.
        """
        text = self.text(name)
        try:
            return default if text is None else float(text)
        except ValueError as error:
            raise InputError(f"{name} is {text!r}, and no number; correct it") from error

    def words(self, name: str) -> list[str]:
        """All words behind an option that are known."""
        return [word for word in self.values.get(name, []) if not MARK.search(word)] if self.has(name) else []

    def rest(self) -> list[str]:
        """Options that were not asked for."""
        return [name for name in self.values if name not in self.taken]


@dataclasses.dataclass(frozen=True)
class MegatronLaunch:
    """A launch's arguments and sizes; None: the script does not say."""

    arguments: Arguments
    nodes: int | None
    gpus_per_node: int | None


def launch_of(words: Sequence[str], sizes: Sequence[str] = ()) -> MegatronLaunch:
    """Divide a launch into its launcher's options and those of the program. ``sizes``: options of ``#SBATCH`` lines."""
    start = next(position for position, word in enumerate(words) if word.endswith(".py"))
    launcher = [*sizes, *words[:start]]
    return MegatronLaunch(Arguments(words[start + 1 :]), _size(launcher, _NODES), _size(launcher, _PER_NODE))


def _size(words: Sequence[str], names: Sequence[str]) -> int | None:
    size = None
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in names:
            value = value if equals else words[position + 1] if position + 1 < len(words) else ""
            number = re.fullmatch(r"(?:\d+:)?(\d+)", value)
            size = int(number[1]) if number else size
    return size
