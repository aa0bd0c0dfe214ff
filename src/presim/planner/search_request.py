"""The request of a search, as the command line and `presim.planner` build it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from presim.planner.knobs import Field
from presim.planner.objectives import Constraints, Objective, Work
from presim.planner.space import Space
from presim.planner.spaces.rules import Rule
from presim.planner.trials.trial_messages import Trainer


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """A space, its objectives and constraints, and how to search it."""

    subject: str  # the model, or the command
    space: Space
    objectives: Sequence[Objective]
    work: Work = dataclasses.field(default_factory=Work)
    constraints: Constraints = dataclasses.field(default_factory=Constraints)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of `RunOptions`
    graph: bytes = b""  # MessagePack of the model's `OperatorGraph`; empty: points are captured with the command
    command: Sequence[str] = ()
    # placeholder -> value -> command words
    words: Mapping[str, Mapping[str, Sequence[str]]] = dataclasses.field(default_factory=dict)
    plan_fields: Mapping[str, Field] = dataclasses.field(default_factory=dict)  # framework knob -> plan field
    rules: Sequence[Rule] = ()  # constraints of a space: a point that breaks one is illegal
    notes: Sequence[str] = ()  # notes to add to the answer
    strategy: str = "exhaustive"
    trials: int | None = None  # number of sampled trials; None: the size of the space, at most 200
    seed: int = 0
    jobs: int = 1
    ray: str | None = None  # address of a Ray cluster; `jobs` then counts its processes, 0: one per CPU
    budget_s: float | None = None  # None: no limit
    prune: Sequence[str] = ()
    gap_percent: float = 1.0  # of the step time, that a plan may save without being simulated
    study: str | None = None  # file or URL of the study that stores finished trials
    confirm: int = 0  # number of best plans to capture on a real framework
    framework: str = "auto"  # framework for these captures; auto: the first that can express a plan
    trainer: Trainer | None = None  # a framework whose captures price the best plans; None: composed figures stand
    framework_plans: int = 0  # number of these plans
    confirm_command: Sequence[str] = ()  # command to capture instead, with knobs as placeholders
    extends: bool = True  # whether points of a command may follow from captures of others
