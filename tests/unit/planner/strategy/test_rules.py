"""Each rule prunes a plan that it has evidence against, and none without."""

from __future__ import annotations

import typing
from typing import Any, cast

import pytest

from presim.evaluation.what_if import Changes
from presim.planner.objectives import OBJECTIVES, Constraints, Work
from presim.planner.strategy.plan_bounds import Bound, Bounds
from presim.planner.strategy.prune import LOSSLESS, LOSSY, RulePruner, invalid_rules
from presim.planner.trials.trial import Figures, Point, Trial
from presim.units import GIB

CAPACITY = 80 * GIB
VALUES: dict[str, Any] = {"micro_batch": (1, 2), "recompute": ("none", "full"), "data_style": ("ddp", "zero1")}
PLAN: Point = {"micro_batch": 1, "global_batch": 8}


class FixedBounds:
    """The bound of any plan: a step of a second, and the memory of each micro-batch."""

    def of(self, point: Point) -> Bound:
        return Bound(1.0, 20 * GIB * int(point.get("micro_batch", 1)), CAPACITY, 1000.0, 8, "h100-sxm")


def priced(point: Point, *, step_s: float, used_gib: int) -> Trial:
    figures = Figures(
        gpus=8,
        step_time_s=step_s,
        low_s=step_s,
        high_s=step_s,
        tokens_per_step=1000.0,
        mfu=None,
        fits=used_gib <= 80,
        memory_bytes=used_gib * GIB,
        headroom_bytes=CAPACITY - used_gib * GIB,
        compute_s=step_s,
        communication_s=0.0,
        exposed_communication_s=0.0,
        host_bound_s=0.0,
        idle_s=0.0,
    )
    return Trial(number=0, point=point, fate="priced", figures=figures)


def pruner(rule: str) -> RulePruner:
    bounds = cast(Bounds, FixedBounds())
    return RulePruner((rule,), bounds, (OBJECTIVES["step_time"],), Work(), Constraints(), VALUES)


# Rule -> the plan that it prunes, the trial that it compares with, and the words of its evidence.
PRUNED: dict[str, tuple[Point, Trial | None, str]] = {
    "memory_bound": (PLAN | {"micro_batch": 5}, None, "needs at least 100.0 GiB of 80.0 GiB"),
    "time_bound": (PLAN, priced(PLAN | {"tensor": 2}, step_s=0.5, used_gib=10), "takes at least 1.00 s; "),
    "recompute_memory": (
        PLAN | {"recompute": "none"},
        priced(PLAN | {"recompute": "full"}, step_s=2, used_gib=90),
        "recompute=full already lacks 10.0 GiB",
    ),
    "sequence_memory": (
        PLAN | {"sequence_parallel": False},
        priced(PLAN | {"sequence_parallel": True}, step_s=2, used_gib=90),
        "sp=true already lacks 10.0 GiB",
    ),
    "larger_micro_batch": (
        PLAN | {"micro_batch": 2},
        priced(PLAN | {"micro_batch": 1}, step_s=2, used_gib=90),
        "mbs=1 already lacks 10.0 GiB",
    ),
    "needless_recompute": (
        PLAN | {"recompute": "full"},
        priced(PLAN | {"recompute": "none"}, step_s=2, used_gib=60),
        "recompute=none fits with 20.0 GiB to spare",
    ),
    "more_micro_batches": (
        PLAN | {"micro_batch": 1},
        priced(PLAN | {"micro_batch": 2}, step_s=2, used_gib=60),
        "mbs=2 fits with 20.0 GiB to spare",
    ),
    "needless_sharding": (
        PLAN | {"data_style": "zero1"},
        priced(PLAN | {"data_style": "ddp"}, step_s=2, used_gib=60),
        "dp-style=ddp fits with 20.0 GiB to spare",
    ),
}


@pytest.mark.parametrize("rule", PRUNED)
def test_a_rule_prunes_what_it_has_evidence_against(rule: str) -> None:
    point, witness, words = PRUNED[rule]
    rules = pruner(rule)
    if witness is not None:
        assert rules.pruned(1, point) is None
        rules.record(witness)
    trial = rules.pruned(1, point)
    assert trial is not None
    assert (trial.fate, trial.rule, trial.witness) == ("pruned", rule, witness and witness.point)
    assert trial.words.startswith(words)


def test_every_rule_is_above() -> None:
    """But for the one that evaluates the first stage of a plan: `test_prune` has it."""
    assert PRUNED.keys() == {*LOSSLESS, *LOSSY} - {"first_stage"}


@pytest.mark.parametrize("rule", ["needless_recompute", "more_micro_batches", "needless_sharding"])
def test_a_plan_waits_for_the_one_that_may_prune_it(rule: str) -> None:
    """They are evaluated in rounds, in which the witness would come too late."""
    point, witness, _ = PRUNED[rule]
    assert typing.cast(Trial, witness).point in pruner(rule).waits_for(point)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (Changes(bandwidth={"inter": 0.1}), ()),  # the bound's cluster has it, too
        (Changes(stragglers={"rank1": 0.5}), ()),
        (Changes(stragglers={"rank1": 1.5}), ("time_bound", "more_micro_batches")),
        (Changes(operators={"gemm": 2.0}), ("more_micro_batches",)),
        (Changes(operators={"gemm": 2.0, "attention": 0.5}), ("time_bound", "more_micro_batches")),
    ],
)
def test_a_change_that_makes_work_faster_invalidates_bounds_of_time(
    changes: Changes, expected: tuple[str, ...]
) -> None:
    assert invalid_rules(changes) == expected
