"""How a model is trained on a cluster: one typed value, checked before anything is composed."""

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
    """Degrees of parallelism and what else decides what a rank does; sizes are of one rank where not said otherwise."""

    sequence: int  # tokens of a sample
    micro_batch: int = 1  # samples of one forward pass
    global_batch: int = 0  # samples of a step of all ranks; 0: one micro-batch for each data-parallel rank
    tensor: int = 1  # tensor-parallel ranks; the others shard parameters and data between them by FSDP2
    sequence_parallel: bool = False  # tensor-parallel ranks split what lies between their layers along the sequence
    vocabulary_parallel: bool = False  # they split embedding, output layer and loss by words; so does sequence_parallel
    context: int = 1  # ranks that have a part of each sequence
    context_style: Literal["all-gather", "ulysses", "ring"] = "all-gather"  # how their attention sees the other parts
    expert: int = 1  # neighbours that share out the experts of a layer; each keeps its own tokens' share of the rest
    pipeline: int = 1  # stages' ranks
    virtual: int = 1  # stages of each rank
    schedule: Literal["", "gpipe", "1f1b", "interleaved", "zero-bubble"] = ""  # empty: 1f1b, interleaved if virtual
    data_style: Literal["fsdp2", "hsdp", "ddp", "zero1"] = "fsdp2"  # what data-parallel ranks share
    shard: int = 0  # of hsdp: neighbouring data-parallel ranks that shard parameters; others have copies
    overlap: bool = True  # of ddp and zero1: gradients and parameters travel while the model computes
    stages: tuple[int, ...] = ()  # repeated blocks of each stage; empty: as equal as can be
    reshard: bool = True  # FSDP2: parameters of a block are freed after its forward pass
    keep_last: bool = False  # FSDP2: except of the last block, as torchtitan does
    recompute: Literal["none", "full"] = "none"  # of each repeated block
    activation_budget: float = 1.0  # blocks keep this part of their activations; the cheapest others run again
    optimizer: Choice = "adamw"
    clip: bool = True  # gradients are clipped to a norm
    attention: Literal["auto", "cudnn", "flash"] = "auto"  # fused attention; auto: cuDNN from Hopper on, else flash
    passes: tuple[str, ...] = ()  # further changes of the graph, in order: fusion, quantisation, the user's own
    recompute_blocks: int = 0  # so many blocks are recomputed, from the first on; 0: all
    cuda_graphs: bool = False  # kernels are launched by CUDA graphs: no host time between them
    style: str = ""  # framework style, for launch times; empty: eager, or dtensor with tensor parallelism

    def data(self, world_size: int) -> int:
        """Data-parallel ranks."""
        return world_size // (self.tensor * self.context * self.pipeline)

    def sharing(self, world_size: int) -> int:
        """Ranks that shard parameters or sum gradients: of other data, and of other parts of the same sequences."""
        return world_size // (self.tensor * self.pipeline)

    def micro_batches(self, world_size: int) -> int:
        """Micro-batches of a step of one rank."""
        return max(1, self.global_batch // (self.micro_batch * self.data(world_size)))

    @property
    def local_sequence(self) -> int:
        """Tokens of a sample that a rank has between its split layers."""
        return self.sequence // self.parts

    @property
    def parts(self) -> int:
        """Into how many parts a sequence is split."""
        return self.context * (self.tensor if self.sequence_parallel else 1)

    @property
    def splits_words(self) -> bool:
        """Whether embedding, output layer and loss are split by words."""
        return self.vocabulary_parallel or self.sequence_parallel

    @property
    def order(self) -> str:
        """The schedule that is meant."""
        return self.schedule or ("interleaved" if self.virtual > 1 else "1f1b")


class Layout(msgspec.Struct, frozen=True):
    """Which ranks the first rank of a pipeline stage shares groups with.

    Ranks are numbered tensor first, then context, data and pipeline, as Megatron and torchtitan number them.
    """

    world_size: int
    rank: int
    data: tuple[int, ...]  # those that context parallelism makes among them
    tensor: tuple[int, ...]
    context: tuple[int, ...]
    pipeline: tuple[int, ...]
    shard: tuple[int, ...] = ()  # of hsdp
    replicas: tuple[int, ...] = ()  # likewise
    experts: tuple[int, ...] = ()  # those that share out experts, where some do
    copies: tuple[int, ...] = ()  # those that have the same experts, within `shard` where there is one

    @property
    def neighbours(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The pairs with the rank before and after in the pipeline, which is a ring."""
        place = self.pipeline.index(self.rank)
        before, after = self.pipeline[place - 1], self.pipeline[(place + 1) % len(self.pipeline)]
        return tuple(sorted((before, self.rank))), tuple(sorted((self.rank, after)))

    @property
    def stands_for(self) -> tuple[int, ...]:
        """The other ranks of the stage."""
        return tuple(range(self.rank + 1, self.rank + len(self.data) * len(self.tensor)))


def read_plan(path: str | None, said: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a TOML file, completed and overridden by what is said beside it; ``usual``: what neither says.

    Raises:
        InputError: the file cannot be read, a field is unknown or of the wrong type, or none says the sequence.
    """
    fields: dict[str, Any] = {}
    if path is not None:
        try:
            fields = tomllib.loads(Path(path).read_text())
        except OSError as error:
            raise InputError(f"cannot read the plan {path}: {error.strerror}; name another file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is no TOML: {error}; correct it") from error
    fields = {**(usual or {}), **fields, **said}
    if "sequence" not in fields:
        raise InputError("a plan needs the tokens of a sample: use --seq, e.g. --seq 4096, or `sequence` in the plan")
    try:
        return msgspec.convert(fields, Plan)
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(Plan))
        raise InputError(f"{path or 'the plan'}: {error}; a plan has {known}") from error


def layout(plan: Plan, world_size: int, stage: int = 0) -> Layout:
    """The groups of a stage's first rank."""
    inside = world_size // plan.pipeline  # ranks of a stage
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
    """Raise where the plan cannot be; ``blocks``: repeated blocks of the model, where known.

    Raises:
        InputError: what does not divide, with the equation and the nearest plans that do.
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
            f"context = {plan.context} is odd: parts from the beginning and the end of a sequence are shared out in "
            f"pairs; use {plan.context - 1}, {plan.context + 1}, or context_style ulysses or ring"
        )
    pieces = 2 * plan.context
    if plan.context > 1 and plan.context_style == "ring" and plan.sequence % pieces:
        near = _near(max(1, plan.sequence // pieces), lambda count: count > 0)
        lengths = ", ".join(str(int(count) * pieces) for count in near.split(", "))
        raise InputError(
            f"the sequence of {plan.sequence} tokens has no {pieces} equal pieces, two for each rank of a ring "
            f"({plan.sequence} % {pieces} = {plan.sequence % pieces}); lengths that have: {lengths}"
        )
    if plan.sequence % plan.parts:
        near = _near(plan.sequence // plan.parts, lambda count: count > 0)
        lengths = ", ".join(str(int(count) * plan.parts) for count in near.split(", "))
        raise InputError(
            f"the sequence of {plan.sequence} tokens has no {plan.parts} equal parts, as context and sequence_parallel "
            f"ask for ({plan.sequence} % {plan.parts} = {plan.sequence % plan.parts}); lengths that have: {lengths}"
        )


def _check_budget(plan: Plan) -> None:
    if not 0 <= plan.activation_budget <= 1:
        raise InputError(
            f"activation_budget = {plan.activation_budget:g} is a part of the activations of a block; use 0 to 1"
        )
    if plan.activation_budget < 1 and plan.recompute != "none":
        raise InputError(
            f"activation_budget = {plan.activation_budget:g} chooses what is recomputed, and recompute = "
            f"{plan.recompute} recomputes all; leave out one of them"
        )


def _check_shard(plan: Plan, world_size: int) -> None:
    data = plan.sharing(world_size)
    if plan.data_style != "hsdp":
        if plan.shard:
            raise InputError(
                f"shard = {plan.shard} is of data_style hsdp, not {plan.data_style}; leave one of them out"
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
            f"expert = {plan.expert} is composed with data_style fsdp2 and hsdp only, not {plan.data_style}; use one "
            "of them (--dp-style)"
        )
    if plan.tensor > 1 and not plan.sequence_parallel:
        raise InputError(
            f"expert = {plan.expert} with tensor = {plan.tensor}: ranks that split layers would send the same tokens; "
            "use sequence_parallel (--sp), or a tensor degree of 1"
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
            f"global_batch = {plan.global_batch} is no multiple of micro_batch x data = {plan.micro_batch} x {data} = "
            f"{each}; those that are: {multiples}"
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
        raise InputError(f"schedule {plan.order} has one stage a rank, not {plan.virtual}; use interleaved")
    if plan.stages and len(plan.stages) != count:
        raise InputError(
            f"stages lists {len(plan.stages)} stages, but pipeline x virtual = {plan.pipeline} x {plan.virtual} = "
            f"{count}; correct the plan"
        )
    if blocks and plan.stages and sum(plan.stages) != blocks:
        raise InputError(f"stages sum up to {sum(plan.stages)} blocks, the model has {blocks}; correct the plan")
    if blocks and count > blocks:
        raise InputError(
            f"pipeline x virtual = {plan.pipeline} x {plan.virtual} = {count} stages, but the model has {blocks} "
            "blocks; use fewer stages"
        )


def _check_rounds(plan: Plan, world_size: int) -> None:
    """Raise where a schedule cannot run so many micro-batches.

    Raises:
        InputError: interleaved stages need rounds of equal length.
    """
    micros, ranks = plan.micro_batches(world_size), plan.pipeline
    if ranks > 1 and plan.order in ("interleaved", "zero-bubble") and micros % max(1, micros // ranks):
        each = plan.micro_batch * plan.data(world_size)
        near = _near(micros, lambda count: count % max(1, count // ranks) == 0)
        batches = ", ".join(str(int(count) * each) for count in near.split(", "))
        raise InputError(
            f"{micros} micro-batches make no equal rounds on {ranks} ranks ({micros} % {micros // ranks} = "
            f"{micros % (micros // ranks)}) as schedule {plan.order} needs; global batches that do: {batches}"
        )


def _divides(world_size: int, others: int, degree: int) -> bool:
    return world_size % (degree * others) == 0


def _near(wanted: int, fits: Callable[[int], bool]) -> str:
    candidates = [degree for degree in range(1, 4 * wanted + 1) if fits(degree)]
    nearest = sorted(sorted(candidates, key=lambda degree: abs(degree - wanted))[:4])
    return ", ".join(map(str, nearest))
