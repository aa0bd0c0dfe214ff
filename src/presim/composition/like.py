"""Derive the plan of a captured job from its trace, as far as the trace shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from presim.errors import InputError
from presim.trace.schema import Group, Phase, Trace
from presim.trace.signatures import Attention, Collective, Signature

_Times: TypeAlias = Counter[Signature]
_SHARDED = "aten::split_with_sizes_copy"  # FSDP2 copies out gathered parameters with it
_LEAST_BYTES = 1 << 16  # collectives of norms and losses are smaller than this


def plan_of(trace: Trace, user_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Plan fields that the last step of a captured rank shows; ``user_fields``: fields given by the user.

    Raises:
        InputError: the number of tokens per step is unknown.
    """
    batch = trace.manifest.batch
    samples, tokens = batch.get("samples", 0), batch.get("tokens", 0)
    if "sequence" not in user_fields and not (samples and tokens):
        raise InputError("the capture does not show how many samples and tokens a step has; use --seq and --mbs")
    steps = trace.steps()
    last_step = steps[-1] if steps else slice(None)
    columns = {name: trace.columns[name][last_step] for name in ("phase", "signature", "operator")}
    launched = {trace.operators[index] for index in set(columns["operator"].tolist()) if index >= 0}
    counts = Counter(index for index in columns["signature"].tolist() if index >= 0)
    times: _Times = Counter({trace.signatures[index]: count for index, count in counts.items()})
    plan: dict[str, Any] = {
        **({"sequence": tokens // samples, "micro_batch": samples} if samples and tokens else {}),
        "recompute": "full" if (columns["phase"] == Phase.RECOMPUTE).any() else "none",
        "optimizer": "adamw" if _has_adam(launched) else "none",
        "clip": any("foreach_norm" in name or "l2norm" in name for name in launched),
    }
    backends = {signature.backend for signature in times if isinstance(signature, Attention)}
    if len(backends) == 1:
        plan["attention"] = backends.pop()
    plan |= {} if "tensor" in user_fields else _degrees(trace, times)
    plan |= {} if "data_style" in user_fields else _data_style(trace, times, launched)
    batch_of = _batch(trace, times, {**plan, **user_fields}, samples)
    micros = samples // int({**plan, **batch_of, **user_fields}.get("micro_batch", samples) or 1)
    return plan | _keeps_last(trace, times, micros) | batch_of


def _has_adam(launched: set[str]) -> bool:
    """Whether Adam's own kernel runs, or the operators of PyTorch's version without it, for lists or single tensors."""
    unfused = ("lerp_", "addcmul_", "addcdiv_")  # first moment, second moment, update
    parts = [{f"aten::{prefix}{name}" for name in unfused} for prefix in ("_foreach_", "")]
    return any("adam" in name for name in launched) or any(part <= launched for part in parts)


def _keeps_last(trace: Trace, times: _Times, micros: int) -> dict[str, Any]:
    """Whether FSDP2 keeps the last block gathered: then one gather per micro-batch is missing."""
    groups = {collective.group for collective in _of(times, "reduce_scatter", "float32")}
    scattered = sum(times[collective] for collective in _of(times, "reduce_scatter", "float32"))
    gathered = sum(times[collective] for collective in _of(times, "all_gather") if collective.group in groups)
    return {"keep_last": True} if len(groups) == 1 and gathered == 2 * (scattered - micros) > scattered else {}


def _batch(trace: Trace, times: _Times, plan: Mapping[str, Any], samples: int) -> dict[str, Any]:
    """Micro-batch and global batch; the batch dimension of attention gives the samples of one forward pass."""
    batches = {
        signature.batch for signature in times if isinstance(signature, Attention) and signature.direction == "forward"
    }
    micro = int(plan.get("micro_batch", samples))
    if "micro_batch" not in plan or micro == samples:
        micro = batches.pop() if len(batches) == 1 else micro
    if not samples or not micro or samples % micro:
        return {}
    model_ranks = int(plan.get("tensor", 1)) * int(plan.get("context", 1)) * int(plan.get("pipeline", 1))
    micros = samples // micro
    many = {"global_batch": samples * (trace.manifest.world_size // model_ranks)} if micros > 1 else {}
    return {"micro_batch": micro, **many}


def _data_style(trace: Trace, times: _Times, launched: set[str]) -> dict[str, Any]:
    """The data-parallel style, derived from the collectives of gradients and parameters."""
    groups = trace.manifest.groups
    scattered = _of(times, "reduce_scatter", "float32")
    if _SHARDED not in launched:
        if scattered:
            return {"data_style": "zero1"}
        sums = [collective for collective in _of(times, "all_reduce") if groups[collective.group].size > 1]
        return {"data_style": "ddp"} if any(collective.bytes > _LEAST_BYTES for collective in sums) else {}
    style_fields: dict[str, Any] = {}
    shards = {groups[collective.group] for collective in scattered}
    between = {groups[collective.group] for collective in _of(times, "all_reduce", "float32")}
    if len(shards) == 1 and any(not _is_inside(group, shard) for group in between for shard in shards):
        style_fields = {"data_style": "hsdp", "shard": shards.copy().pop().size}
    gathers = [collective for collective in _of(times, "all_gather") if groups[collective.group] in shards]
    if gathers and sum(times[collective] for collective in gathers) <= sum(
        times[collective] for collective in scattered
    ):
        style_fields["reshard"] = False
    return style_fields


def _of(times: _Times, kind: str, dtype: str = "") -> list[Collective]:
    collectives = [
        collective
        for collective in times
        if isinstance(collective, Collective) and collective.kind == kind and collective.group >= 0
    ]
    return [
        collective for collective in collectives if collective.bytes > _LEAST_BYTES and dtype in ("", collective.dtype)
    ]


def _is_inside(group: Group, other: Group) -> bool:
    return set(group.ranks) <= set(other.ranks)


def _is_consecutive(group: Group) -> bool:
    return bool(group.ranks) and list(group.ranks) == list(range(group.ranks[0], group.ranks[0] + group.size))


def _degrees(trace: Trace, times: _Times) -> dict[str, Any]:
    """The tensor-parallel degree: the size of the groups of consecutive ranks that exchange activations."""
    halves = ("bfloat16", "float16")
    groups = trace.manifest.groups
    sums: Sequence[Collective] = [collective for dtype in halves for collective in _of(times, "all_reduce", dtype)]
    parts = [collective for dtype in halves for collective in _of(times, "reduce_scatter", dtype)]
    degrees: dict[str, Any] = {}
    for collective in (*sums, *parts):
        group = groups[collective.group]
        if _is_consecutive(group) and 1 < group.size < trace.manifest.world_size:
            degrees["tensor"] = max(degrees.get("tensor", 1), group.size)
            if collective in parts:
                degrees["sequence_parallel"] = True
    return degrees
