"""What a search evaluates, as the processes that do it are told, and what they answer."""

from __future__ import annotations

from typing import Any

import msgspec

from presim.search.knobs import Field
from presim.search.trials.trial import Fate, Figures


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A model that plans are composed for, or a command with placeholders."""

    graph: bytes = b""  # MessagePack of an `OperatorGraph`; empty: the command is captured
    meant: dict[str, Field] = {}  # of points with a framework's knobs: what those are in a plan
    command: list[str] = []  # with {knob} where a knob's value goes
    words: dict[str, dict[str, list[str]]] = {}  # knob -> value -> words, for a {knob} that is a word by itself
    options: dict[str, Any] = {}  # fields of `RunOptions`; a point's own values win
    prune: list[str] = []  # rules that need a bound of each point


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a point."""

    fate: Fate
    figures: Figures | None = None
    rule: str = ""  # that pruned it while it was evaluated
    words: str = ""
