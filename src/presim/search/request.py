"""What is asked of a search: one value, as `presim.search` and the command line take it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from presim.search.knobs import Field
from presim.search.objectives import Constraints, Objective, Work
from presim.search.space import Space
from presim.search.spaces.rules import Rule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A space, what is to be best in it, and how it is searched."""

    subject: str  # the model, or the command
    space: Space
    objectives: Sequence[Objective]
    work: Work = dataclasses.field(default_factory=Work)
    constraints: Constraints = dataclasses.field(default_factory=Constraints)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of `RunOptions`
    graph: bytes = b""  # of the model; empty: a command is captured
    command: Sequence[str] = ()
    words: Mapping[str, Mapping[str, Sequence[str]]] = dataclasses.field(default_factory=dict)  # of its placeholders
    meant: Mapping[str, Field] = dataclasses.field(default_factory=dict)  # of a framework's knobs: what plans call them
    rules: Sequence[Rule] = ()  # of a space: points that break one are illegal
    notes: Sequence[str] = ()  # for the answer
    strategy: str = "exhaustive"
    trials: int | None = None  # a sampler's; None: as many as the space has points, at most 200
    seed: int = 0
    jobs: int = 1
    ray: str | None = None  # address of a Ray cluster that evaluates points; jobs: its processes, 0: all of its CPUs
    budget_s: float | None = None  # None: until every point has a fate
    prune: Sequence[str] = ()
    study: str | None = None  # file or URL that finished trials are kept in
    confirm: int = 0  # so many of the best plans are captured on a real framework
    framework: str = "auto"  # which; auto: the first that can express a plan
    confirm_command: Sequence[str] = ()  # captured in its place, with knobs as placeholders
