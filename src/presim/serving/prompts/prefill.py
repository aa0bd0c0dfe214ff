"""Plans the prefill of one batch of prompts on ranks that split them, beside the simple plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from presim.composition.models.description import Model
from presim.errors import InputError
from presim.hardware import Cluster
from presim.serving.prompts import shares
from presim.serving.prompts.assign import Found, PromptBatch
from presim.serving.prompts.prompt_times import Doubt, PromptTimes
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.engine_memory import lay_out
from presim.system import budgets

MOST_PROMPTS = 1024  # of a batch: the search compares each with all ranks
# Measured with 1,600 prompts of 50 to 8,000 tokens of Llama-3-8B in batches of 65,536 and 262,144 tokens, over 2, 8 and
# 32 ranks, on a core of an Intel Xeon: 1.0 to 1.7 ms.
_PROMPT_OF_RANK_S = 1.5e-3
NOT_MODELLED = (
    "groups that gather at the same time do not slow each other down",
    "host time and the first token's sampling",
    "a prompt whose first tokens are in the prefix cache",
)


@dataclasses.dataclass(frozen=True)
class Prefilled:
    """A batch with the plan found for it and the simple ones."""

    model: Model
    plan: ServingPlan  # of one rank: its tensor-parallel GPUs
    cluster: Cluster
    ranks: int
    lengths: tuple[int, ...]
    policies: dict[str, Found]  # dynamic, zigzag, contiguous, whole
    doubts: dict[str, Doubt]
    blocks_ns: dict[str, float]  # attention block of the slowest rank: projections, attention, gathers

    @property
    def dynamic(self) -> Found:
        """The plan found."""
        return self.policies["dynamic"]

    def gain(self, policy: str) -> float:
        """The share of a simple plan's time that the plan found saves."""
        return 1 - self.dynamic.ns / self.policies[policy].ns


def check(model: Model, plan: ServingPlan, ranks: int, lengths: Sequence[int]) -> None:
    """Raise InputError for prompts that cannot be, or ranks that do not hold the model."""
    plan.check(model)
    if model.recurrent:
        raise InputError(
            f"{model.name} has recurrent layers, whose states pass from chunk to chunk: its prompts are not split over "
            "ranks; choose a model with attention alone"
        )
    if not lengths:
        raise InputError("a batch needs at least one prompt; give --lengths 32768,8192 or a --trace")
    if len(lengths) > MOST_PROMPTS:
        raise InputError(
            f"a batch of {len(lengths):,} prompts is more than {MOST_PROMPTS:,}; give fewer, or a --budget"
        )
    longest, shortest = max(lengths), min(lengths)
    if shortest < 1:
        raise InputError(f"a prompt of {shortest} tokens; give at least 1")
    if longest > model.longest:
        raise InputError(f"a prompt of {longest:,} tokens is longer than the {model.longest:,} that {model.name} takes")
    if ranks < 1:
        raise InputError(f"--sp {ranks} must be at least 1")


def check_work(prompts: int, ranks: int, budget: budgets.Budget | None = None) -> None:
    """Check how long planning takes; ``prompts``: of all batches, ``budget``: None is the default.

    Raises:
        InputError: it would take more than the budget.
    """
    estimate = budgets.Estimate(prompts, f"prompts over {ranks} ranks", prompts * ranks * _PROMPT_OF_RANK_S)
    budgets.check(estimate, budget, "raise --work-budget, e.g. --work-budget 2h")


def of_batch(prices: PromptTimes, lengths: Sequence[int]) -> Prefilled:
    """Plan a batch that `check` has passed. ``prices`` are of at least as many tokens as it has."""
    batch = PromptBatch(prices, lengths)
    policies = {
        "dynamic": batch.best(),
        "zigzag": batch.uniform("zigzag"),
        "contiguous": batch.uniform("contiguous"),
        "whole": batch.whole(),
    }
    tokens = {name: _tokens(lengths, split_plan, prices.ranks) for name, split_plan in policies.items()}
    return Prefilled(
        prices.model,
        prices.plan,
        prices.cluster,
        prices.ranks,
        tuple(lengths),
        policies,
        {name: _doubt(prices, lengths, split_plan, tokens[name]) for name, split_plan in policies.items()},
        {name: _block_ns(prices, split_plan, tokens[name]) for name, split_plan in policies.items()},
    )


def batches(lengths: Iterable[int], budget: int) -> list[tuple[int, ...]]:
    """Prompts in order, as many together as have at most ``budget`` tokens; a longer one is alone."""
    groups: list[list[int]] = []
    remaining_tokens = 0
    for length in lengths:
        if length > remaining_tokens or not groups or len(groups[-1]) == MOST_PROMPTS:
            groups.append([])
            remaining_tokens = budget
        groups[-1].append(length)
        remaining_tokens -= length
    return [tuple(batch) for batch in groups]


def _tokens(lengths: Sequence[int], split_plan: Found, ranks: int) -> np.ndarray:
    tokens = np.zeros(ranks)
    for length, way in zip(lengths, split_plan.ways):
        for rank, calls in zip(way.ranks, shares.calls(length, way)):
            tokens[rank] += sum(queries for queries, _ in calls)
    return tokens


def check_memory(prefilled: Prefilled) -> None:
    """Raise InputError if a rank cannot hold the weights and, of the plan found, the activations of its tokens."""
    tokens = max(int(_tokens(prefilled.lengths, prefilled.dynamic, prefilled.ranks).max()), 1)
    lay_out(prefilled.model, dataclasses.replace(prefilled.plan, max_num_batched_tokens=tokens), prefilled.cluster.gpu)


def _doubt(prices: PromptTimes, lengths: Sequence[int], split_plan: Found, tokens: np.ndarray) -> Doubt:
    slowest = int(split_plan.parts_ns.sum(axis=1).argmax())
    rank_ways = [(length, way) for length, way in zip(lengths, split_plan.ways) if slowest in way.ranks]
    calls = [call for length, way in rank_ways for call in shares.calls(length, way)[slowest - way.first]]
    degrees = sorted({way.degree for _, way in rank_ways} - {1})
    return prices.rests_on(int(tokens[slowest]), calls, degrees, split_plan.parts_ns[slowest])


def _block_ns(prices: PromptTimes, split_plan: Found, tokens: np.ndarray) -> float:
    return float((prices.projections_ns(tokens) + split_plan.parts_ns[:, 1] + split_plan.parts_ns[:, 2]).max())
