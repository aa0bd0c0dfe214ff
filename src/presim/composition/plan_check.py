"""The training plan of a model on a cluster: one typed value, validated before composing."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable

from presim.composition.own_schedule import OWN, parse
from presim.composition.passes import expert_routing
from presim.composition.plan import Plan
from presim.composition.schedule_source import with_passes
from presim.errors import InputError

_POSITIVE = ("sequence", "micro_batch", "tensor", "context", "expert", "pipeline", "virtual")
_MOST_TOKENS = 1 << 40  # in a micro-batch: sums of its tensors' bytes still fit in 64 bits


@dataclasses.dataclass(frozen=True)
class PlanCheck:
    """A condition on a plan."""

    fields: tuple[str, ...]  # of the plan: all that it reads
    raise_if_broken: Callable[[Plan, int, int], None]  # of plan, GPUs, and blocks of the model


def check(plan: Plan, world_size: int, blocks: int = 0) -> None:
    """Raise if the plan is invalid; ``blocks``: repeated blocks of the model, 0 if unknown.

    Raises:
        InputError: shows the equation that fails and the nearest values that work.
    """
    for condition in CHECKS:
        condition.raise_if_broken(plan, world_size, blocks)


def _check_positive(plan: Plan, world_size: int, blocks: int) -> None:
    for name in _POSITIVE:
        if getattr(plan, name) < 1:
            raise InputError(f"{name} = {getattr(plan, name)} must be at least 1; correct the plan")


def _check_tokens(plan: Plan, world_size: int, blocks: int) -> None:
    if plan.sequence * plan.micro_batch > _MOST_TOKENS:
        raise InputError(
            f"sequence x micro_batch = {plan.sequence} x {plan.micro_batch} tokens is more than 2^40 = {_MOST_TOKENS}; "
            "correct the plan"
        )


def _check_tensor(plan: Plan, world_size: int, blocks: int) -> None:
    _check_degree("tensor", plan.tensor, 1, world_size)


def _check_context(plan: Plan, world_size: int, blocks: int) -> None:
    _check_degree("context", plan.context, plan.tensor, world_size)


def _check_pipeline(plan: Plan, world_size: int, blocks: int) -> None:
    _check_degree("pipeline", plan.pipeline, plan.tensor * plan.context, world_size)


def _check_degree(name: str, degree: int, inner_degree: int, world_size: int) -> None:
    """Raise if a degree does not divide the GPUs, with the product of the degrees inside of it."""
    if world_size % (degree * inner_degree):
        divisors = _near_divisor(degree, world_size, inner_degree)
        product = f"{name} = {degree}" if inner_degree == 1 else f"{name} x others = {degree} x {inner_degree}"
        raise InputError(
            f"{product} does not divide {world_size} GPUs ({world_size} % {degree * inner_degree} = "
            f"{world_size % (degree * inner_degree)}); degrees that do: {divisors}"
        )


def _check_sequence(plan: Plan, world_size: int, blocks: int) -> None:
    if plan.context > 1 and plan.context % 2 and plan.context_style == "all-gather":
        raise InputError(
            f"context = {plan.context} is odd: each rank gets a pair of parts, from the start and the end of a "
            f"sequence; use {plan.context - 1}, {plan.context + 1}, or context_style ulysses or ring"
        )
    pieces = 2 * plan.context
    if plan.context > 1 and plan.context_style == "ring" and plan.sequence % pieces:
        nearest_counts = _near(max(1, plan.sequence // pieces), lambda count: count > 0)
        lengths = ", ".join(str(int(count) * pieces) for count in nearest_counts.split(", "))
        raise InputError(
            f"the sequence of {plan.sequence} tokens does not split into {pieces} equal pieces, two per rank of a ring "
            f"({plan.sequence} % {pieces} = {plan.sequence % pieces}); lengths that do: {lengths}"
        )
    if plan.sequence % plan.parts:
        nearest_counts = _near(plan.sequence // plan.parts, lambda count: count > 0)
        lengths = ", ".join(str(int(count) * plan.parts) for count in nearest_counts.split(", "))
        raise InputError(
            f"the sequence of {plan.sequence} tokens does not split into {plan.parts} equal parts, as context and "
            f"sequence_parallel require ({plan.sequence} % {plan.parts} = {plan.sequence % plan.parts}); lengths that "
            f"do: {lengths}"
        )


def _check_budget(plan: Plan, world_size: int, blocks: int) -> None:
    if not 0 <= plan.activation_budget <= 1:
        raise InputError(
            f"activation_budget = {plan.activation_budget:g} must be a share of a block's activations; use 0 to 1"
        )
    if plan.activation_budget < 1 and plan.recompute != "none":
        raise InputError(
            f"activation_budget = {plan.activation_budget:g} recomputes some activations, but recompute = "
            f"{plan.recompute} recomputes all; leave out one of them"
        )


def _check_offload(plan: Plan, world_size: int, blocks: int) -> None:
    count = plan.offload_activations
    if count < 0 or (blocks and count > blocks):
        raise InputError(
            f"offload_activations = {count} blocks, but the model has {blocks or 'some'} blocks; use 0 to "
            f"{blocks or 'their number'} (--offload-activations)"
        )
    if plan.offload_optimizer == "cpu" and plan.optimizer != "adamw":
        raise InputError(
            f"offload_optimizer = cpu updates by AdamW in fp32, not by {plan.optimizer}; use --optimizer adamw, or "
            "--offload-optimizer states"
        )
    if plan.offload_optimizer == "states" and plan.optimizer in ("none", "sgd"):
        raise InputError(f"optimizer = {plan.optimizer} has no states to offload; leave out offload_optimizer")


def _check_ends(plan: Plan, world_size: int, blocks: int) -> None:
    if plan.separate_ends and (plan.pipeline > 1 or plan.data_style not in ("fsdp2", "hsdp")):
        raise InputError(
            "separate_ends applies to data_style fsdp2 and hsdp without a pipeline, not to "
            f"{plan.data_style} and pipeline = {plan.pipeline}; leave it out"
        )


def _check_shard(plan: Plan, world_size: int, blocks: int) -> None:
    data = plan.sharing(world_size)
    if plan.data_style != "hsdp":
        if plan.shard:
            raise InputError(
                f"shard = {plan.shard} applies to data_style hsdp only, not to {plan.data_style}; leave out one of them"
            )
        return
    if plan.shard == 0:
        degrees = _near_divisor(min(8, data), data)  # most nodes have eight GPUs
        raise InputError(
            "data_style hsdp needs shard, the number of ranks that hold one copy of the parameters; degrees that "
            f"divide {data} data-parallel ranks: {degrees} (--shard)"
        )
    if plan.shard < 1 or data % plan.shard:
        degrees = _near_divisor(max(1, plan.shard), data)
        raise InputError(
            f"shard = {plan.shard} does not divide {data} data-parallel ranks; degrees that do: {degrees} (--shard)"
        )


def _check_experts(plan: Plan, world_size: int, blocks: int) -> None:
    routing = expert_routing.parse(plan.routing, plan.expert_capacity, plan.pad_experts)
    if plan.expert == 1:
        if plan.expert_exchange != "all-to-all" or not routing.is_even or plan.expert_capacity:
            raise InputError(
                "expert = 1, but expert_exchange, routing, expert_capacity and pad_experts are those of expert "
                "parallelism; set its degree (--ep), or leave them out"
            )
        return
    if plan.pad_experts and plan.expert_exchange == "deepep":
        raise InputError("pad_experts: DeepEP sends tokens only, no padding; use expert_exchange = all-to-all")
    if plan.tensor > 1 and not plan.sequence_parallel:
        raise InputError(
            f"expert = {plan.expert} with tensor = {plan.tensor}: tensor-parallel ranks would all send the same "
            "tokens; use sequence_parallel (--sp), or a tensor degree of 1"
        )
    ranks = plan.shard * plan.tensor or world_size // plan.pipeline
    if ranks % plan.expert:
        valid_degrees = _near_divisor(plan.expert, ranks)
        raise InputError(
            f"expert = {plan.expert} does not divide the {ranks} ranks that share parameters "
            f"({ranks} % {plan.expert} = {ranks % plan.expert}); degrees that do: {valid_degrees}"
        )


def _check_batch(plan: Plan, world_size: int, blocks: int) -> None:
    data = plan.data(world_size)
    micro_step_samples = plan.micro_batch * data
    if plan.global_batch < 0 or plan.global_batch % micro_step_samples:
        nearest_counts = _near(max(1, plan.global_batch // micro_step_samples), lambda count: count > 0)
        multiples = ", ".join(str(int(count) * micro_step_samples) for count in nearest_counts.split(", "))
        raise InputError(
            f"global_batch = {plan.global_batch} is not a multiple of micro_batch x data = {plan.micro_batch} x {data} "
            f"= {micro_step_samples}; use one of {multiples}"
        )
    if plan.pipeline > 1 and not plan.global_batch:
        raise InputError(
            f"a pipeline of {plan.pipeline} needs micro-batches: use --global-batch, e.g. "
            f"{4 * plan.pipeline * micro_step_samples} for {4 * plan.pipeline} of them"
        )


def _check_stages(plan: Plan, world_size: int, blocks: int) -> None:
    count = plan.pipeline * plan.virtual
    if plan.virtual > 1 and plan.pipeline == 1:
        raise InputError(f"virtual = {plan.virtual} needs a pipeline of at least 2; correct the plan")
    if plan.order == "dualpipe" and (plan.pipeline % 2 or plan.virtual > 1):
        raise InputError(
            "schedule dualpipe has an even number of ranks, each with one stage and a copy of the opposite one, not "
            f"pipeline = {plan.pipeline} and virtual = {plan.virtual}; use pipeline = "
            f"{plan.pipeline + plan.pipeline % 2} and virtual = 1"
        )
    if (plan.order == OWN) != bool(plan.rank_passes):
        raise InputError(
            f"schedule {plan.order} and {len(plan.rank_passes)} rows of rank_passes: name a file with the passes of "
            "each rank (--schedule-file) and no other schedule, or leave both out"
        )
    if plan.rank_passes and plan.pipeline == 1:
        raise InputError("a schedule of passes needs a pipeline of at least 2 ranks (--pp)")
    if plan.order in ("gpipe", "1f1b") and plan.virtual > 1:
        raise InputError(f"schedule {plan.order} has one stage per rank, not {plan.virtual}; use interleaved")
    if plan.order == "dualpipev" and plan.virtual != 2:
        raise InputError(
            f"schedule dualpipev has two stages a rank, on the two sides of a V, not {plan.virtual}; use virtual = 2 "
            "(--vpp 2)"
        )
    if plan.side_by_side and plan.order not in ("dualpipe", "dualpipev"):
        raise InputError(
            "passes run side by side only in a pipeline with schedule dualpipe or dualpipev, not with schedule "
            f"{plan.schedule or plan.order} and pipeline = {plan.pipeline}; leave --side-by-side out, or use "
            "--schedule dualpipe"
        )
    if plan.stages and len(plan.stages) != count:
        raise InputError(
            f"stages lists {len(plan.stages)} stages, but pipeline x virtual = {plan.pipeline} x {plan.virtual} = "
            f"{count}; correct the plan"
        )
    if blocks and plan.stages and sum(plan.stages) != blocks:
        raise InputError(f"stages sum to {sum(plan.stages)} blocks, but the model has {blocks}; correct the plan")
    if blocks and count > blocks:
        raise InputError(
            f"pipeline x virtual = {plan.pipeline} x {plan.virtual} = {count} stages, but the model has {blocks} "
            "blocks; use fewer stages"
        )


def _check_rounds(plan: Plan, world_size: int, blocks: int) -> None:
    """Raise if a schedule cannot run this number of micro-batches.

    Raises:
        InputError: interleaved stages need rounds of equal length.
    """
    micros, ranks = plan.micro_batches(world_size), plan.pipeline
    if plan.rank_passes:
        parse(with_passes(plan, world_size).rank_passes, ranks, ranks * plan.virtual, micros).orders()
    micro_step_samples = plan.micro_batch * plan.data(world_size)
    if plan.order == "dualpipe" and (micros % 2 or micros < 2 * ranks):
        even = max(2 * ranks, micros + micros % 2)
        raise InputError(
            f"schedule dualpipe needs an even number of micro-batches, half from each end, and at least 2 x {ranks} = "
            f"{2 * ranks}, not {micros}; use --global-batch {even * micro_step_samples}"
        )
    if plan.order == "dualpipev" and micros < 2 * ranks:
        raise InputError(
            f"schedule dualpipev needs a micro-batch for each of 2 x {ranks} = {2 * ranks} stages, not {micros}; use "
            f"--global-batch {2 * ranks * micro_step_samples} or more"
        )
    if ranks > 1 and plan.order in ("interleaved", "zero-bubble") and micros % max(1, micros // ranks):
        nearest_counts = _near(micros, lambda count: count % max(1, count // ranks) == 0)
        batches = ", ".join(str(int(count) * micro_step_samples) for count in nearest_counts.split(", "))
        raise InputError(
            f"{micros} micro-batches do not split into equal rounds on {ranks} ranks ({micros} % {micros // ranks} = "
            f"{micros % (micros // ranks)}) as schedule {plan.order} needs; global batches that do: {batches}"
        )


def _divides(world_size: int, other_ranks: int, degree: int) -> bool:
    return world_size % (degree * other_ranks) == 0


def _near_divisor(target_degree: int, total: int, other_ranks: int = 1) -> str:
    """As `_near`, of values that divide ``total`` together with ``other_ranks``; none is larger than ``total``."""
    return _near(min(target_degree, total), functools.partial(_divides, total, other_ranks))


def _near(target: int, fits: Callable[[int], bool]) -> str:
    """The four fitting values nearest to ``target``, at most four times as large, searched outwards from it."""
    around = (value for gap in range(3 * target + 1) for value in sorted({target - gap, target + gap}))
    nearest = sorted(itertools.islice((value for value in around if value > 0 and fits(value)), 4))
    return ", ".join(map(str, nearest))


_PARTS = ("sequence", "tensor", "sequence_parallel", "context", "context_style")
_EXPERTS = ("expert", "expert_exchange", "routing", "expert_capacity", "pad_experts", "tensor", "sequence_parallel")
_BATCH = ("global_batch", "micro_batch", "tensor", "context", "pipeline")
_ORDER = ("pipeline", "virtual", "schedule", "rank_passes")
CHECKS = (
    PlanCheck(_POSITIVE, _check_positive),
    PlanCheck(("sequence", "micro_batch"), _check_tokens),
    PlanCheck(("tensor",), _check_tensor),
    PlanCheck(("tensor", "context"), _check_context),
    PlanCheck(("tensor", "context", "pipeline"), _check_pipeline),
    PlanCheck(_PARTS, _check_sequence),
    PlanCheck(("activation_budget", "recompute"), _check_budget),
    PlanCheck(("offload_activations", "offload_optimizer", "optimizer"), _check_offload),
    PlanCheck(("data_style", "shard", "tensor", "pipeline"), _check_shard),
    PlanCheck(("separate_ends", "pipeline", "data_style"), _check_ends),
    PlanCheck((*_EXPERTS, "shard", "pipeline"), _check_experts),
    PlanCheck(_BATCH, _check_batch),
    PlanCheck((*_ORDER, *_BATCH), _check_rounds),
    PlanCheck((*_ORDER, "stages", "side_by_side"), _check_stages),
)
