"""Pruning rules: each proves, without evaluating a point, that it is not the best.

A rule compares a point with a witness, a trial that was priced. Rules in `LOSSLESS` never lose the best plan and are on
by default. Rules in `LOSSY` may lose it and run only if named.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from presim.errors import InputError
from presim.evaluation.what_if import Changes
from presim.planner.answer.why import show
from presim.planner.objectives import Constraints, Objective, Work
from presim.planner.strategy.kept_bounds import KeptBounds
from presim.planner.strategy.plan_bounds import Bound, Bounds
from presim.planner.trials.trial import Figures, Point, Trial, Value, key
from presim.units import gib, seconds

LOSSLESS = {
    "memory_bound": "Parameters, optimizer states and activations alone do not fit.",
    "time_bound": "Its kernels and the communication they wait for take longer than the best plan.",
    "recompute_memory": "It does not fit with recomputation, so it does not fit without (Maya's first rule).",
    "sequence_memory": "It does not fit with sequence parallelism, so it does not fit without (Maya's second rule).",
    "larger_micro_batch": "It does not fit with a smaller micro-batch, so it does not fit with a larger one.",
    "needless_recompute": "It fits without recomputation, which only adds time.",
    "first_stage": "The first stage of its pipeline, composed by itself, does not fit.",
    "more_micro_batches": "It fits with fewer, larger micro-batches and no pipeline, and its kernels are no faster "
    "(Maya's fourth rule).",
}
LOSSY = {
    "needless_sharding": "It fits without sharded optimizer states (Maya's third rule; loses plans whose shorter "
    "optimizer step outweighs its communication).",
}
Evidence: TypeAlias = tuple[Point | None, str]  # the witness, if it takes one, and a sentence with its numbers
_TIMES = ("step_time", "tokens_per_s", "tokens_per_s_per_gpu", "gpu_hours", "money", "days")


def rules_of(names: Sequence[str]) -> tuple[str, ...]:
    """Look up rules by name; ``none`` disables all, ``lossless`` selects the default rules.

    Raises:
        InputError: a rule is unknown.
    """
    rule_names: list[str] = []
    for name in names or ("lossless",):
        if name == "lossless":
            rule_names += LOSSLESS
        elif name in LOSSLESS or name in LOSSY:
            rule_names.append(name)
        elif name != "none":
            raise InputError(f"no rule {name!r}; use lossless, none, {', '.join([*LOSSLESS, *LOSSY])}")
    return tuple(dict.fromkeys(rule_names))


def invalid_rules(changes: Changes) -> tuple[str, ...]:
    """Rules whose proofs do not hold under what-if changes of prices; the cluster of a bound has changed bandwidths."""
    is_faster = any(factor < 1 for factor in changes.operators.values())
    is_faster = is_faster or any(speed > 1 for speed in changes.stragglers.values())
    if changes.estimators or is_faster:
        return ("time_bound", "more_micro_batches")
    return ("more_micro_batches",) if changes.operators else ()


@dataclasses.dataclass
class RulePruner:
    """Applies rules to points, based on trials priced before."""

    rules: Sequence[str]
    bounds: Bounds
    objectives: Sequence[Objective]
    work: Work
    constraints: Constraints
    values: Mapping[str, Sequence[Value]]  # values of the varied knobs
    gap: float = 0.0  # share of the step time that a plan must save at least
    count: int = 1  # number of best plans to find
    kept_bounds: KeptBounds | None = None

    def __post_init__(self) -> None:
        self._known: dict[str, Trial] = {}
        self._best: list[Trial] = []  # best first, no more than ``count``
        self._bound: dict[str, Bound | None] = {}
        self._timed = len(self.objectives) == 1 and self.objectives[0].name in _TIMES

    def order(self, points: Sequence[tuple[int, Point]]) -> list[tuple[int, Point]]:
        """Most promising bound first; among equals, no recomputation and few micro-batches first."""

        def promise(numbered: tuple[int, Point]) -> tuple[float, bool, int, int]:
            number, point = numbered
            bound = self._bound_of(point)
            loss = self.objectives[0].loss(bound.figures(), self.work) if bound and self._timed else 0.0
            batch = point.get("micro_batch", 1)
            return loss, point.get("recompute", "none") != "none", -int(batch), number

        self._bound |= self.kept_bounds.load() if self.kept_bounds is not None else {}
        num_kept = len(self._bound)
        in_order = sorted(points, key=promise)
        if self.kept_bounds is not None and len(self._bound) > num_kept:
            self.kept_bounds.save(self._bound)
        return in_order

    def record(self, trial: Trial) -> None:
        """Remember a trial; bounds are compared with the best trials that meet all constraints."""
        if trial.figures is None:
            return
        self._known[key(trial.point)] = trial
        if self.constraints.broken(trial, self.work):
            return
        self._best = sorted([*self._best, trial], key=self._rank)[: self.count]

    def _rank(self, trial: Trial) -> tuple[float, int]:
        return self._loss(_figures_of(trial)), trial.number

    def waits_for(self, point: Point) -> list[Point]:
        """Plans that differ in one knob and can serve as witness."""
        witnesses: list[Point] = []
        if "needless_recompute" in self.rules and point.get("recompute", "none") != "none":
            witnesses.append({**point, "recompute": "none"})
        if "needless_sharding" in self.rules and point.get("data_style", "ddp") != "ddp":
            witnesses.append({**point, "data_style": "ddp"})
        if "more_micro_batches" in self.rules and point.get("global_batch"):
            size_here = int(point.get("micro_batch", 1))
            witnesses += [{**point, "micro_batch": size} for size in self._sizes() if size > size_here]
        return witnesses

    def _sizes(self) -> list[int]:
        return [int(size) for size in self.values.get("micro_batch", ())]

    def pruned(self, number: int, point: Point) -> Trial | None:
        """The trial of a point that cannot be best, with its rule and witness."""
        for rule in self.rules:
            evidence = _PROOFS[rule](self, point)
            if evidence is not None:
                witness, words = evidence
                lacks = self._missing_bytes(point) if rule == "memory_bound" else None
                return Trial(
                    number=number,
                    point=point,
                    fate="pruned",
                    rule=rule,
                    witness=witness,
                    words=words,
                    lacks_bytes=lacks,
                )
        return None

    def _loss(self, figures: Figures) -> float:
        return self.objectives[0].loss(figures, self.work)

    def _bound_of(self, point: Point) -> Bound | None:
        name = key(point)
        if name not in self._bound:
            try:
                self._bound[name] = self.bounds.of(point)
            except Exception:  # noqa: BLE001  composing reports errors; a bug in a bound must not end the search
                self._bound[name] = None
        return self._bound[name]

    def _memory_bound(self, point: Point) -> Evidence | None:
        bound = self._bound_of(point)
        if bound is None or self._missing_bytes(point) <= 0:
            return None
        spare = f" and {gib(self.constraints.spare_bytes)} to spare" if self.constraints.spare_bytes else ""
        return None, f"needs at least {gib(bound.memory_bytes)}{spare} of {gib(bound.capacity_bytes)}"

    def _missing_bytes(self, point: Point) -> int:
        """Memory in bytes that a plan lacks at least; 0 if its bound is unknown."""
        bound = self._bound_of(point)
        return bound.memory_bytes + self.constraints.spare_bytes - bound.capacity_bytes if bound else 0

    def _time_bound(self, point: Point) -> Evidence | None:
        bound = self._bound_of(point)
        if bound is None or len(self._best) < self.count or not self._timed:
            return None
        witness = self._best[-1]
        figures = _figures_of(witness)
        limit_s = figures.step_time_s / (1 + self.gap)
        if self._loss(bound.figures()) <= self._loss(msgspec.structs.replace(figures, step_time_s=limit_s)):
            return None
        same = bound.tokens_per_step / figures.tokens_per_step if figures.tokens_per_step else 1.0
        return witness.point, (
            f"takes at least {seconds(bound.step_s)}; {show(witness.point, list(self.values))} takes "
            f"{seconds(figures.step_time_s * same)} for as many tokens on {figures.gpus} GPUs"
        )

    def _recompute_memory(self, point: Point) -> Evidence | None:
        if point.get("recompute", "none") != "none":
            return None
        recompute_values = [value for value in self.values.get("recompute", ()) if value != "none"]
        return self._infeasible_witness(point, "recompute", recompute_values)

    def _sequence_memory(self, point: Point) -> Evidence | None:
        return (
            None
            if point.get("sequence_parallel") is not False
            else self._infeasible_witness(point, "sequence_parallel", [True])
        )

    def _larger_micro_batch(self, point: Point) -> Evidence | None:
        size_here = int(point.get("micro_batch", 1))
        return self._infeasible_witness(point, "micro_batch", [size for size in self._sizes() if size < size_here])

    def _needless_recompute(self, point: Point) -> Evidence | None:
        if point.get("recompute", "none") == "none" or point.get("offload_activations"):
            return None  # recomputed blocks offload their inputs only, so recomputation may save time
        return self._faster_feasible_witness(point, "recompute", ["none"])

    def _more_micro_batches(self, point: Point) -> Evidence | None:
        if point.get("pipeline", 1) != 1 or not point.get("global_batch"):
            return None
        size_here, bound = int(point.get("micro_batch", 1)), self._bound_of(point)
        for size in self._sizes():
            larger: Point = {**point, "micro_batch": size}
            if size <= size_here or bound is None:
                continue
            other = self._bound_of(larger)
            if other is not None and other.step_s <= bound.step_s:
                evidence = self._faster_feasible_witness(point, "micro_batch", [size])
                if evidence is not None:
                    return evidence
        return None

    def _needless_sharding(self, point: Point) -> Evidence | None:
        if point.get("data_style", "ddp") == "ddp":
            return None
        return self._faster_feasible_witness(point, "data_style", ["ddp"])

    def _infeasible_witness(self, point: Point, knob: str, values: Sequence[Value]) -> Evidence | None:
        """A witness that needs less memory than this point and does not fit."""
        for value in values:
            other = self._known.get(key({**point, knob: value}))
            if other is not None and not other.fits and other.figures is not None:
                lacks = -other.figures.headroom_bytes
                return other.point, f"{show({knob: value})} already lacks {gib(lacks)}"
        return None

    def _faster_feasible_witness(self, point: Point, knob: str, values: Sequence[Value]) -> Evidence | None:
        """A witness that takes less time than this point and meets all constraints."""
        if not self._timed:
            return None
        for value in values:
            other = self._known.get(key({**point, knob: value}))
            if other is not None and other.figures is not None and not self.constraints.broken(other, self.work):
                spare = other.figures.headroom_bytes
                return other.point, f"{show({knob: value})} fits with {gib(spare)} to spare"
        return None


def _figures_of(trial: Trial) -> Figures:
    assert trial.figures is not None
    return trial.figures


_PROOFS: Mapping[str, Callable[[RulePruner, Point], Evidence | None]] = {
    "memory_bound": RulePruner._memory_bound,
    "time_bound": RulePruner._time_bound,
    "recompute_memory": RulePruner._recompute_memory,
    "sequence_memory": RulePruner._sequence_memory,
    "larger_micro_batch": RulePruner._larger_micro_batch,
    "needless_recompute": RulePruner._needless_recompute,
    "first_stage": lambda pruner, point: None,  # `PlanEvaluator` composes the stage
    "more_micro_batches": RulePruner._more_micro_batches,
    "needless_sharding": RulePruner._needless_sharding,
}
