"""Messages between a search and its worker processes: the job and the replies."""

from __future__ import annotations

from typing import Any

import msgspec

from presim.planner.knobs import Field
from presim.planner.trials.trial import Fate, Figures


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A model to compose plans for, or a command with placeholders."""

    graph: bytes = b""  # MessagePack of an `OperatorGraph`; empty: capture the command
    plan_fields: dict[str, Field] = {}  # framework knob -> plan field
    command: list[str] = []  # with placeholders {knob}
    words: dict[str, dict[str, list[str]]] = {}  # knob -> value -> words, for a {knob} that is a whole word
    options: dict[str, Any] = {}  # fields of `RunOptions`; a point's own values win
    prune: list[str] = []  # rules that the evaluator applies


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a point."""

    fate: Fate
    figures: Figures | None = None
    rule: str = ""  # rule that pruned it during evaluation
    words: str = ""
