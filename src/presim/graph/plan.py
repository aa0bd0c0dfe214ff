"""How a model is trained on a cluster: one typed value, checked before anything is composed."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from presim.errors import InputError


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Degrees of parallelism and what else decides what a rank does; sizes are of one rank where not said otherwise."""

    sequence: int  # tokens of a sample
    micro_batch: int = 1  # samples of one forward pass
    tensor: int = 1  # tensor-parallel ranks; the others shard parameters and data between them by FSDP2
    reshard: bool = True  # FSDP2: parameters of a block are freed after its forward pass
    recompute: Literal["none", "full"] = "none"  # of each repeated block
    optimizer: Literal["none", "adamw"] = "adamw"
    clip: bool = True  # gradients are clipped to a norm
    attention: Literal["auto", "cudnn", "flash"] = "auto"  # fused attention; auto: cuDNN from Hopper on, else flash
    style: str = ""  # framework style, for launch times; empty: eager, or dtensor with tensor parallelism

    def data(self, world_size: int) -> int:
        """Data-parallel ranks."""
        return world_size // self.tensor


class Layout(msgspec.Struct, frozen=True):
    """Who rank 0 is: the ranks it shares groups with. Tensor-parallel ranks are neighbours."""

    world_size: int
    data: tuple[int, ...]
    tensor: tuple[int, ...]


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
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path} is no TOML: {error}; correct it") from error
    fields = {**(usual or {}), **fields, **said}
    if "sequence" not in fields:
        raise InputError("a plan needs the tokens of a sample: use --seq, e.g. --seq 4096, or `sequence` in the plan")
    try:
        return msgspec.convert(fields, Plan)
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(Plan))
        raise InputError(f"{path or 'the plan'}: {error}; a plan has {known}") from error


def layout(plan: Plan, world_size: int) -> Layout:
    """Ranks are numbered data first, then tensor, as torch's device meshes usually are."""
    return Layout(world_size, tuple(range(0, world_size, plan.tensor)), tuple(range(plan.tensor)))


def check(plan: Plan, world_size: int) -> None:
    """Raise where the plan cannot be.

    Raises:
        InputError: what does not divide, with the equation and the nearest plans that do.
    """
    for name in ("sequence", "micro_batch", "tensor"):
        if getattr(plan, name) < 1:
            raise InputError(f"{name} = {getattr(plan, name)} must be at least 1; correct the plan")
    if world_size % plan.tensor:
        near = _near(plan.tensor, lambda degree: world_size % degree == 0)
        raise InputError(
            f"tensor = {plan.tensor} does not divide {world_size} GPUs ({world_size} % {plan.tensor} = "
            f"{world_size % plan.tensor}); degrees that do: {near}"
        )


def _near(wanted: int, fits: Callable[[int], bool]) -> str:
    candidates = [degree for degree in range(1, 4 * wanted + 1) if fits(degree)]
    nearest = sorted(sorted(candidates, key=lambda degree: abs(degree - wanted))[:4])
    return ", ".join(map(str, nearest))
