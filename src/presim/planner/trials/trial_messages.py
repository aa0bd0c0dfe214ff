"""Messages between a search and its worker processes: the job and the replies."""

from __future__ import annotations

from typing import Any

import msgspec

from presim.planner.knobs import Field
from presim.planner.trials.trial import Fate, Figures, Value


class Trainer(msgspec.Struct, frozen=True, kw_only=True):
    """A framework that trains a model, with what the plans do not say of it."""

    model: str
    framework: str  # as `presim compose --framework` names it
    precision: str = "bf16"
    overrides: list[str] = []  # the framework's own options


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """Knobs of a command along which points may follow from others (`presim.planner.lines`)."""

    folder: str  # for the jobs of points, while the search runs
    knobs: dict[str, list[Value]]  # with their values, ascending


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A model to compose plans for, a framework that trains it, or a command with placeholders."""

    graph: bytes = b""  # MessagePack of an `OperatorGraph`; empty: capture the command
    plan_fields: dict[str, Field] = {}  # framework knob -> plan field
    command: list[str] = []  # with placeholders {knob}
    words: dict[str, dict[str, list[str]]] = {}  # knob -> value -> words, for a {knob} that is a whole word
    options: dict[str, Any] = {}  # fields of `RunOptions`; a point's own values win
    prune: list[str] = []  # rules that the evaluator applies
    trainer: Trainer | None = None  # whose captures answer for plans, instead of composing the graph
    lines: Lines | None = None  # of points of the command; None: each is captured

    @property
    def captures(self) -> bool:
        """Whether points are programs that run on the emulated device."""
        return bool(self.command) or self.trainer is not None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a point."""

    fate: Fate
    figures: Figures | None = None
    rule: str = ""  # rule that pruned it during evaluation
    words: str = ""
