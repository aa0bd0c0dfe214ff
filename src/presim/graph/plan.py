"""How a model is trained on a cluster: one typed value, checked before anything is composed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from presim.errors import InputError
from presim.graph.schema import OperatorGraph


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Degrees of parallelism and what else decides what a rank does; sizes are of one rank where not said otherwise."""

    sequence: int  # tokens of a sample
    micro_batch: int = 1  # samples of one forward pass
    micro_batches: int = 1  # forward passes of one step on each data-parallel rank
    tensor: int = 1
    sequence_parallel: bool = False  # norms and residuals are split along the sequence between tensor-parallel ranks
    pipeline: int = 1
    sharding: Literal["none", "ddp", "fsdp2"] = "fsdp2"  # of parameters, gradients and optimizer states
    reshard: bool = True  # FSDP2: parameters of a block are freed after its forward pass
    recompute: Literal["none", "full"] = "none"  # of each repeated block
    optimizer: Literal["none", "adamw"] = "adamw"
    clip: bool = True  # gradients are clipped to a norm
    attention: str = "cudnn"  # backend of fused attention
    style: str = ""  # framework style, for launch times; empty: eager, or dtensor with tensor parallelism

    def data(self, world_size: int) -> int:
        """Data-parallel ranks."""
        return world_size // (self.tensor * self.pipeline)


class Layout(msgspec.Struct, frozen=True):
    """Who a rank is: its place in a plan, and the ranks it shares groups with. Tensor-parallel ranks are neighbours."""

    world_size: int
    rank: int
    data: tuple[int, ...]
    tensor: tuple[int, ...]
    pipeline: tuple[int, ...]

    @property
    def stage(self) -> int:
        """Its place in the pipeline."""
        return self.pipeline.index(self.rank)


def read_plan(path: str | None, said: Mapping[str, Any]) -> Plan:
    """The plan of a TOML file, completed and overridden by what is said beside it.

    Raises:
        InputError: the file cannot be read, a field is unknown or of the wrong type, or none says the sequence.
    """
    fields: dict[str, Any] = {}
    if path is not None:
        try:
            fields = tomllib.loads(Path(path).read_text())
        except OSError as error:
            raise InputError(f"cannot read the plan {path}: {error.strerror}; name another file") from error
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path} is no TOML: {error}; correct it") from error
    fields |= said
    if "sequence" not in fields:
        raise InputError("a plan needs the tokens of a sample: use --seq, e.g. --seq 4096, or `sequence` in the plan")
    try:
        return msgspec.convert(fields, Plan)
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(Plan))
        raise InputError(f"{path or 'the plan'}: {error}; a plan has {known}") from error


def layout(plan: Plan, world_size: int, rank: int) -> Layout:
    """Ranks are numbered pipeline stages first, then data, then tensor, as torch's device meshes usually are."""
    data = plan.data(world_size)
    tensor_place, rest = rank % plan.tensor, rank // plan.tensor
    data_place, stage = rest % data, rest // data

    def number(stage: int, data_place: int, tensor_place: int) -> int:
        return (stage * data + data_place) * plan.tensor + tensor_place

    return Layout(
        world_size,
        rank,
        tuple(number(stage, place, tensor_place) for place in range(data)),
        tuple(number(stage, data_place, place) for place in range(plan.tensor)),
        tuple(number(place, data_place, tensor_place) for place in range(plan.pipeline)),
    )


def check(plan: Plan, graph: OperatorGraph, world_size: int) -> None:
    """Raise where the plan cannot be.

    Raises:
        InputError: what does not divide, with the equation and the nearest plans that do.
    """
    for name in ("sequence", "micro_batch", "micro_batches", "tensor", "pipeline"):
        if getattr(plan, name) < 1:
            raise InputError(f"{name} = {getattr(plan, name)} must be at least 1; correct the plan")
    degrees = plan.tensor * plan.pipeline
    if world_size % degrees:
        near = _near(degrees, lambda product: world_size % product == 0)
        raise InputError(
            f"tensor x pipeline = {plan.tensor} x {plan.pipeline} = {degrees} does not divide {world_size} GPUs; "
            f"products that do: {near}"
        )
    if plan.sequence_parallel and plan.sequence % plan.tensor:
        near = _near(plan.tensor, lambda degree: plan.sequence % degree == 0)
        raise InputError(
            f"sequence parallelism needs sequence % tensor = {plan.sequence} % {plan.tensor} = 0, and it is "
            f"{plan.sequence % plan.tensor}; tensor degrees that divide it: {near}"
        )
    layers = max((segment.count for segment in graph.segments), default=1)
    if plan.pipeline > layers:
        raise InputError(
            f"{plan.pipeline} pipeline stages are more than the {layers} blocks of {graph.model}; use fewer"
        )


def _near(wanted: int, fits: Callable[[int], bool]) -> str:
    candidates = [degree for degree in range(1, 4 * wanted + 1) if fits(degree)]
    nearest = sorted(sorted(candidates, key=lambda degree: abs(degree - wanted))[:4])
    return ", ".join(map(str, nearest))
