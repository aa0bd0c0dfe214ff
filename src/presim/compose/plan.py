"""The training plan of a model on a cluster: one typed value, validated before composing."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from presim.compose.runtime.updates import Choice
from presim.errors import InputError


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Degrees of parallelism and other choices that determine a rank's work; sizes are per rank unless noted."""

    sequence: int  # tokens per sample
    micro_batch: int = 1  # samples per forward pass
    global_batch: int = 0  # samples per step over all ranks; 0: one micro-batch per data-parallel rank
    tensor: int = 1  # tensor-parallel degree; the remaining ranks are data-parallel
    sequence_parallel: bool = False  # split activations between tensor-parallel layers along the sequence
    # split embedding, output layer and loss by vocabulary; implied by sequence_parallel
    vocabulary_parallel: bool = False
    context: int = 1  # context-parallel degree: each rank has a part of every sequence
    # how attention gets keys and values of the other ranks
    context_style: Literal["all-gather", "ulysses", "ring"] = "all-gather"
    expert: int = 1  # expert-parallel degree: consecutive ranks share the experts of each layer
    pipeline: int = 1  # pipeline-parallel degree
    virtual: int = 1  # virtual stages per rank
    # empty: 1f1b, or interleaved if virtual > 1
    schedule: Literal["", "gpipe", "1f1b", "interleaved", "zero-bubble"] = ""
    data_style: Literal["fsdp2", "hsdp", "ddp", "zero1"] = "fsdp2"  # data-parallel style
    shard: int = 0  # hsdp: number of consecutive data-parallel ranks that shard parameters; 0: not set
    overlap: bool = True  # ddp and zero1: overlap communication of gradients and parameters with compute
    stages: tuple[int, ...] = ()  # repeated blocks per stage; empty: as equal as possible
    reshard: bool = True  # FSDP2: free a block's gathered parameters after its forward pass
    keep_last: bool = False  # FSDP2: do not free the last block's parameters, as torchtitan does
    recompute: Literal["none", "full"] = "none"  # activation recomputation of repeated blocks
    activation_budget: float = 1.0  # share of a block's activations to keep; the rest is recomputed at the least cost
    optimizer: Choice = "adamw"
    clip: bool = True  # clip gradients by norm
    # attention backend; auto: cuDNN on Hopper and newer, else flash
    attention: Literal["auto", "cudnn", "flash"] = "auto"
    passes: tuple[str, ...] = ()  # additional graph passes, in order: fusion, quantisation, user-defined
    recompute_blocks: int = 0  # number of blocks to recompute, from the first; 0: all
    cuda_graphs: bool = False  # launch kernels with CUDA graphs: no host time between them
    style: str = ""  # framework style of the launch times; empty: eager, or dtensor with tensor parallelism

    def data(self, world_size: int) -> int:
        """Data-parallel degree."""
        return world_size // (self.tensor * self.context * self.pipeline)

    def sharing(self, world_size: int) -> int:
        """Number of ranks that shard parameters or reduce gradients: data-parallel times context-parallel degree."""
        return world_size // (self.tensor * self.pipeline)

    def micro_batches(self, world_size: int) -> int:
        """Micro-batches per step on one rank."""
        return max(1, self.global_batch // (self.micro_batch * self.data(world_size)))

    @property
    def local_sequence(self) -> int:
        """Tokens of a sample on one rank between tensor-parallel layers."""
        return self.sequence // self.parts

    @property
    def parts(self) -> int:
        """Number of parts of a sequence."""
        return self.context * (self.tensor if self.sequence_parallel else 1)

    @property
    def splits_words(self) -> bool:
        """Whether embedding, output layer and loss are split by vocabulary."""
        return self.vocabulary_parallel or self.sequence_parallel

    @property
    def order(self) -> str:
        """The schedule, with the default filled in."""
        return self.schedule or ("interleaved" if self.virtual > 1 else "1f1b")


class Layout(msgspec.Struct, frozen=True):
    """Process groups of the first rank of a pipeline stage.

    Rank numbers vary fastest along tensor, then context, data and pipeline, as in Megatron and torchtitan.
    """

    world_size: int
    rank: int
    data: tuple[int, ...]  # data-parallel group, including context-parallel ranks
    tensor: tuple[int, ...]
    context: tuple[int, ...]
    pipeline: tuple[int, ...]
    shard: tuple[int, ...] = ()  # hsdp: ranks that shard parameters
    replicas: tuple[int, ...] = ()  # hsdp: ranks with copies of the same shard
    experts: tuple[int, ...] = ()  # expert-parallel group, if any
    copies: tuple[int, ...] = ()  # ranks with the same experts, within `shard` if there is one

    @property
    def neighbours(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(previous rank, this rank) and (this rank, next rank) in the pipeline, seen as a ring."""
        place = self.pipeline.index(self.rank)
        before, after = self.pipeline[place - 1], self.pipeline[(place + 1) % len(self.pipeline)]
        return tuple(sorted((before, self.rank))), tuple(sorted((self.rank, after)))

    @property
    def stands_for(self) -> tuple[int, ...]:
        """The other ranks of the stage, which this rank represents."""
        return tuple(range(self.rank + 1, self.rank + len(self.data) * len(self.tensor)))


def read_plan(path: str | None, options: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Plan:
    """Build a plan from a TOML file, options that override it, and defaults for fields that neither sets.

    Raises:
        InputError: the file cannot be read, a field is unknown or has the wrong type, or the sequence is missing.
    """
    fields: dict[str, Any] = {}
    if path is not None:
        try:
            fields = tomllib.loads(Path(path).read_text())
        except OSError as error:
            raise InputError(f"cannot read the plan {path}: {error.strerror}; name another file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not valid TOML: {error}; correct it") from error
    fields = {**(defaults or {}), **fields, **options}
    if "sequence" not in fields:
        raise InputError("a plan needs the sequence length: use --seq, e.g. --seq 4096, or `sequence` in the plan")
    try:
        return msgspec.convert(fields, Plan)
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(Plan))
        raise InputError(f"{path or 'the plan'}: {error}; a plan has {known}") from error


def layout(plan: Plan, world_size: int, stage: int = 0) -> Layout:
    """Process groups of a stage's first rank."""
    inside = world_size // plan.pipeline  # ranks per stage
    first = stage * inside
    data = tuple(range(first, first + inside, plan.tensor))
    sharers = plan.shard * plan.tensor or inside
    return Layout(
        world_size,
        first,
        data,
        tuple(range(first, first + plan.tensor)),
        data[: plan.context],
        tuple(range(0, world_size, inside)),
        data[: plan.shard] if plan.shard else (),
        data[:: plan.shard] if plan.shard else (),
        tuple(range(first, first + plan.expert)) if plan.expert > 1 else (),
        tuple(range(first, first + sharers, plan.expert)) if plan.expert > 1 else (),
    )


def check(plan: Plan, world_size: int, blocks: int = 0) -> None:
    """Raise if the plan is invalid; ``blocks``: repeated blocks of the model, 0 if unknown.

    Raises:
        InputError: shows the equation that fails and the nearest values that work.
    """
    for name in ("sequence", "micro_batch", "tensor", "context", "expert", "pipeline", "virtual"):
        if getattr(plan, name) < 1:
            raise InputError(f"{name} = {getattr(plan, name)} must be at least 1; correct the plan")
    degrees = (("tensor", 1), ("context", plan.tensor), ("pipeline", plan.tensor * plan.context))
    for name, others in degrees:
        degree = getattr(plan, name)
        if world_size % (degree * others):
            near = _near(degree, functools.partial(_divides, world_size, others))
            product = f"{name} = {degree}" if others == 1 else f"{name} x others = {degree} x {others}"
            raise InputError(
                f"{product} does not divide {world_size} GPUs ({world_size} % {degree * others} = "
                f"{world_size % (degree * others)}); degrees that do: {near}"
            )
    _check_sequence(plan)
    _check_budget(plan)
    _check_shard(plan, world_size)
    _check_experts(plan, world_size)
    _check_batch(plan, world_size)
    _check_rounds(plan, world_size)
    _check_stages(plan, blocks)


def _check_sequence(plan: Plan) -> None:
    if plan.context > 1 and plan.context % 2 and plan.context_style == "all-gather":
        raise InputError(
            f"context = {plan.context} is odd: each rank gets a pair of parts, from the start and the end of a "
            f"sequence; use {plan.context - 1}, {plan.context + 1}, or context_style ulysses or ring"
        )
    pieces = 2 * plan.context
    if plan.context > 1 and plan.context_style == "ring" and plan.sequence % pieces:
        near = _near(max(1, plan.sequence // pieces), lambda count: count > 0)
        lengths = ", ".join(str(int(count) * pieces) for count in near.split(", "))
        raise InputError(
            f"the sequence of {plan.sequence} tokens does not split into {pieces} equal pieces, two per rank of a ring "
            f"({plan.sequence} % {pieces} = {plan.sequence % pieces}); lengths that do: {lengths}"
        )
    if plan.sequence % plan.parts:
        near = _near(plan.sequence // plan.parts, lambda count: count > 0)
        lengths = ", ".join(str(int(count) * plan.parts) for count in near.split(", "))
        raise InputError(
            f"the sequence of {plan.sequence} tokens does not split into {plan.parts} equal parts, as context and "
            f"sequence_parallel require ({plan.sequence} % {plan.parts} = {plan.sequence % plan.parts}); lengths that "
            f"do: {lengths}"
        )


def _check_budget(plan: Plan) -> None:
    if not 0 <= plan.activation_budget <= 1:
        raise InputError(
            f"activation_budget = {plan.activation_budget:g} must be a share of a block's activations; use 0 to 1"
        )
    if plan.activation_budget < 1 and plan.recompute != "none":
        raise InputError(
            f"activation_budget = {plan.activation_budget:g} recomputes some activations, but recompute = "
            f"{plan.recompute} recomputes all; leave out one of them"
        )


def _check_shard(plan: Plan, world_size: int) -> None:
    data = plan.sharing(world_size)
    if plan.data_style != "hsdp":
        if plan.shard:
            raise InputError(
                f"shard = {plan.shard} applies to data_style hsdp only, not to {plan.data_style}; leave out one of them"
            )
        return
    if plan.shard < 1 or data % plan.shard:
        near = _near(max(1, plan.shard), functools.partial(_divides, data, 1))
        raise InputError(
            f"shard = {plan.shard} does not divide {data} data-parallel ranks; degrees that do: {near} (--shard)"
        )


def _check_experts(plan: Plan, world_size: int) -> None:
    if plan.expert == 1:
        return
    if plan.data_style not in ("fsdp2", "hsdp"):
        raise InputError(
            f"expert = {plan.expert} works with data_style fsdp2 and hsdp only, not {plan.data_style}; use one "
            "of them (--dp-style)"
        )
    if plan.tensor > 1 and not plan.sequence_parallel:
        raise InputError(
            f"expert = {plan.expert} with tensor = {plan.tensor}: tensor-parallel ranks would all send the same "
            "tokens; use sequence_parallel (--sp), or a tensor degree of 1"
        )
    ranks = plan.shard * plan.tensor or world_size // plan.pipeline
    if ranks % plan.expert:
        near = _near(plan.expert, functools.partial(_divides, ranks, 1))
        raise InputError(
            f"expert = {plan.expert} does not divide the {ranks} ranks that share parameters "
            f"({ranks} % {plan.expert} = {ranks % plan.expert}); degrees that do: {near}"
        )


def _check_batch(plan: Plan, world_size: int) -> None:
    data = plan.data(world_size)
    each = plan.micro_batch * data
    if plan.global_batch < 0 or plan.global_batch % each:
        near = _near(max(1, plan.global_batch // each), lambda count: count > 0)
        multiples = ", ".join(str(int(count) * each) for count in near.split(", "))
        raise InputError(
            f"global_batch = {plan.global_batch} is not a multiple of micro_batch x data = {plan.micro_batch} x {data} "
            f"= {each}; use one of {multiples}"
        )
    if plan.pipeline > 1 and not plan.global_batch:
        raise InputError(
            f"a pipeline of {plan.pipeline} needs micro-batches: use --global-batch, e.g. "
            f"{4 * plan.pipeline * each} for {4 * plan.pipeline} of them"
        )


def _check_stages(plan: Plan, blocks: int) -> None:
    count = plan.pipeline * plan.virtual
    if plan.virtual > 1 and plan.pipeline == 1:
        raise InputError(f"virtual = {plan.virtual} needs a pipeline of at least 2; correct the plan")
    if plan.order in ("gpipe", "1f1b") and plan.virtual > 1:
        raise InputError(f"schedule {plan.order} has one stage per rank, not {plan.virtual}; use interleaved")
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


def _check_rounds(plan: Plan, world_size: int) -> None:
    """Raise if a schedule cannot run this number of micro-batches.

    Raises:
        InputError: interleaved stages need rounds of equal length.
    """
    micros, ranks = plan.micro_batches(world_size), plan.pipeline
    if ranks > 1 and plan.order in ("interleaved", "zero-bubble") and micros % max(1, micros // ranks):
        each = plan.micro_batch * plan.data(world_size)
        near = _near(micros, lambda count: count % max(1, count // ranks) == 0)
        batches = ", ".join(str(int(count) * each) for count in near.split(", "))
        raise InputError(
            f"{micros} micro-batches do not split into equal rounds on {ranks} ranks ({micros} % {micros // ranks} = "
            f"{micros % (micros // ranks)}) as schedule {plan.order} needs; global batches that do: {batches}"
        )


def _divides(world_size: int, others: int, degree: int) -> bool:
    return world_size % (degree * others) == 0


def _near(wanted: int, fits: Callable[[int], bool]) -> str:
    candidates = [degree for degree in range(1, 4 * wanted + 1) if fits(degree)]
    nearest = sorted(sorted(candidates, key=lambda degree: abs(degree - wanted))[:4])
    return ", ".join(map(str, nearest))
